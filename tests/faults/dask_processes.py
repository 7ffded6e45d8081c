"""A Dask scheduler and its workers as processes that can be killed, stopped and started again."""

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import psutil

from faults.lab import SOURCE, until


class DaskProcesses:
    """A scheduler on a port of its own, and workers that a nanny starts again when they die."""

    def __init__(self, folder: Path, workers: int, settings: Mapping[str, str] | None = None) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        folder.mkdir()
        self._folder, self._log = folder, (folder / "log").open("ab")
        self._env = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1", **(settings or {})}
        self.address = f"tcp://127.0.0.1:{self.port}"
        self._count = workers
        self._begin()

    def workers(self) -> list[psutil.Process]:
        """Processes that do the work, and what they have started."""
        return [child for nanny in self._nannies for child in _children(nanny.pid)]

    def kill_scheduler(self) -> None:
        """Its workers end some time after it, when nobody answers them."""
        self.scheduler.kill()
        self.scheduler.wait()

    def start_again(self) -> None:
        """Start everything anew at the same address."""
        self._end_all()
        self._begin()

    def end(self) -> None:
        """End all of them."""
        self._end_all()
        self._log.close()

    def _begin(self) -> None:
        self.scheduler = self._start("scheduler", "--port", str(self.port), "--host", "127.0.0.1", "--no-dashboard")
        until(lambda: _answers(self.port), "the scheduler")
        self._nannies = [self._start("worker", self.address, "--nthreads", "1") for _ in range(self._count)]

    def _end_all(self) -> None:
        workers = self.workers()
        for process in (*self._nannies, self.scheduler):
            process.kill()
            process.wait()
        for worker in workers:
            with suppress(psutil.NoSuchProcess):
                worker.kill()

    def _start(self, kind: str, *words: str) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", f"distributed.cli.dask_{kind}", *words]
        return subprocess.Popen(
            command, cwd=self._folder, env=self._env, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log
        )


def _children(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _answers(port: int) -> bool:
    with socket.socket() as attempt:
        attempt.settimeout(1)
        return attempt.connect_ex(("127.0.0.1", port)) == 0

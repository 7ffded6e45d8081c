"""Real processes to be killed, stopped and starved, and the undisturbed result that theirs is compared with."""

import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil

SOURCE = Path(__file__).parents[2] / "src"
PATIENCE = 600.0  # seconds, on a busy machine
BUGS = ("Traceback", "Unexpected", ": unexpected ", "Fatal Python error")


@dataclass
class Command:
    """A `panther` command that runs in a process of its own."""

    words: tuple[str, ...]
    process: "subprocess.Popen[bytes]"
    log: Path

    @property
    def text(self) -> str:
        """Everything it has said."""
        return f"panther {' '.join(self.words)}\n{self.log.read_text(errors='replace')}"

    @property
    def code(self) -> int | None:
        """Exit code; negative: the signal that ended it; None: it runs."""
        return self.process.poll()

    def send(self, number: int) -> bool:
        """Send a signal, unless it has ended."""
        if self.code is None:
            self.process.send_signal(number)
            return True
        return False

    def kill(self) -> bool:
        """Kill it (-9), unless it has ended, and wait until it is gone."""
        if not self.send(signal.SIGKILL):
            return False
        until(lambda: self.code is not None, "its end")
        return True

    def wait(self, *codes: int) -> int:
        """Wait for its end, which is honest and one of ``codes``."""
        until(lambda: self.code is not None, f"the end of {self.text}")
        code = self.code
        assert code is not None
        assert code in (codes or (0,)), f"exit code {code}: {self.text}"
        assert code < 0 or not any(bug in self.text for bug in BUGS), self.text
        return code


def until(reached: Callable[[], object], what: str) -> None:
    """Wait for something that must come."""
    end = time.monotonic() + PATIENCE
    while not reached():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.01)


@dataclass
class Lab:
    """A folder of its own: whoever works in it is known by that."""

    folder: Path
    commands: int = 0

    def start(self, *words: object, env: Mapping[str, str] | None = None) -> Command:
        """Start a command here, as a user would."""
        self.commands += 1
        log = self.folder.with_name(f"{self.folder.name}-{self.commands}.log")
        arguments = tuple(map(str, words))
        environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1", **(env or {})}
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "panther", *arguments],
                cwd=self.folder, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment,
            )  # fmt: skip
        return Command(arguments, process, log)

    def run(self, *words: object, code: int = 0, **options: Any) -> Command:
        """Run a command to its end."""
        command = self.start(*words, **options)
        command.wait(code)
        return command

    def undisturbed(self, *words: object, output: str = "out.npz") -> str:
        """Hash of what a command writes that nobody disturbs; the file is removed."""
        self.run(*words)
        actual = self.digest(output)
        (self.folder / output).unlink()
        return actual

    def others(self, *known: Command) -> list[psutil.Process]:
        """Processes of this lab beside these commands: their workers, and what starts them."""
        pids = {command.process.pid for command in known}
        return [process for process in _in(self.folder) if process.pid not in pids]

    def digest(self, *names: str) -> str:
        """Hash of files, or of all files of folders that are no pictures of the time they took."""
        actual = hashlib.sha256()
        for name in names:
            place = self.folder / name
            for path in [place] if place.is_file() else sorted(path for path in place.rglob("*") if path.is_file()):
                actual.update(
                    f"{path.relative_to(self.folder)} {hashlib.sha256(path.read_bytes()).hexdigest()}".encode()
                )
        return actual.hexdigest()

    def assert_clean(self) -> None:
        """Nobody works here any longer, and nothing unfinished lies here."""
        until(lambda: not self.others(), f"the end of {self.others()}")
        left = [path for path in self.folder.rglob("*") if path.suffix in (".lock", ".part", ".partial", ".shards")]
        assert not left, left


def _in(folder: Path) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        try:
            if process.cwd() == str(folder) and process.status() != psutil.STATUS_ZOMBIE:
                yield process
        except psutil.Error:
            pass


def make_cohort(folder: Path, slides: int, patches: int = 2000, dim: int = 16) -> Path:
    """Bags in `features`, prototypes in `p.npy`, labels in `cohort.csv`."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(4, dim)) * 3
    (folder / "features").mkdir(parents=True)
    for number in range(slides):
        rows = centres[rng.integers(0, 4 - number % 2, patches + 10 * number)]
        bag = (rows + rng.normal(size=rows.shape)).astype(np.float32)
        np.save(folder / "features" / f"S{number:02d}.npy", bag)
    np.save(folder / "p.npy", centres.astype(np.float32))
    lines = [f"S{number:02d},P{number:02d},{'ab'[number % 2]}" for number in range(slides)]
    (folder / "cohort.csv").write_text("\n".join(["slide_id,case_id,subtype", *lines, ""]))
    return folder


def kill_workers(lab: Lab, command: Command, times: int, chance: random.Random, longest: float) -> int:
    """Kill processes of a command, but not itself, one after the other at random moments; how many were hit."""
    killed = 0
    while killed < times and command.code is None:
        time.sleep(chance.uniform(0.0, longest))
        with suppress(
            psutil.NoSuchProcess
        ):  # children of the command are the server of the workers and the tracker of their files
            if victims := [other for other in lab.others(command) if other.ppid() != command.process.pid]:
                chance.choice(victims).send_signal(signal.SIGKILL)
                killed += 1
    return killed

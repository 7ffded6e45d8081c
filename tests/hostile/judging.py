"""Run a command and judge it: whatever it was given, it ends in time, says what is wrong in sentences, and loses nothing in silence."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from commands import invoke

TIME_LIMIT = 120.0  # seconds; a busy machine imports torch slowly
BUGS = ("Traceback", "Unexpected", ": unexpected ", "Fatal Python error", "Segmentation fault", "core dumped")


@dataclass(frozen=True)
class Finished:
    """How a command ended."""

    arguments: tuple[str, ...]
    code: int  # negative: killed by that signal
    out: str
    err: str
    timed_out: bool = False

    @property
    def text(self) -> str:
        """Everything it said."""
        return f"panther {' '.join(self.arguments)} -> {self.code}\n{self.out}\n{self.err}"


def run_here(arguments: Iterable[object], folder: Path) -> Finished:
    """Run the command in this process: fast, for what cannot crash or hang it."""
    given = tuple(map(str, arguments))
    with contextlib.chdir(folder):
        ended = invoke(*given)
    return Finished(given, ended.exit_code, ended.stdout, ended.stderr)


def run_apart(
    arguments: Iterable[object], folder: Path, limit: float = TIME_LIMIT, env: Mapping[str, str] | None = None
) -> Finished:
    """Run the command in a process of its own, with a time limit; what is left of it is killed."""
    given = tuple(map(str, arguments))
    process = subprocess.Popen(
        [sys.executable, "-m", "panther", *given],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", **(env or {})},
    )
    try:
        out, err = process.communicate(timeout=limit)
        return Finished(given, process.returncode, out, err)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        return Finished(given, process.returncode, out, err, timed_out=True)


def assert_honest(done: Finished, lost: Iterable[str] = ()) -> None:
    """No crash, no hang, no bug; and where something is lost or wrong, a code that is not 0 and its name in the text."""
    assert not done.timed_out, f"it hangs: {done.text}"
    assert done.code in (0, 1, 2), f"it crashed: {done.text}"
    assert not any(bug in done.out + done.err for bug in BUGS), done.text
    for name in lost:
        assert done.code != 0, f"{name} was lost in silence: {done.text}"
        assert name in done.out + done.err, f"{name} is not named: {done.text}"
    if done.code == 2:
        assert done.err.strip(), "refused without a word"


def assert_goes_on(done: Finished, lost: Iterable[str]) -> None:
    """Honest, and the rest of the cohort was worked on: exit code 1."""
    assert_honest(done, lost)
    assert done.code == 1, done.text


def assert_refused(done: Finished, *words: str) -> None:
    """Honest, refused as a whole (exit code 2), in a sentence with these words."""
    assert_honest(done)
    assert done.code == 2, done.text
    for word in words:
        assert word in done.err, done.text

"""Steps that run once: a step whose arguments, forerunners and files are those of last time is passed over."""

import hashlib
import json
import runpy
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from panther.errors import InputError
from panther.machine import process_context
from panther.store import atomic_write
from panther.version import __version__

Say = Callable[[str], None]


@dataclass(frozen=True)
class DemoStep:
    """One command of the product, or something that the demo does itself."""

    name: str  # of its stamp
    outputs: tuple[Path, ...]  # files or folders that are there afterwards
    arguments: tuple[
        str, ...
    ]  # of `panther`; where the demo acts itself, words that say all that the result depends on
    act: Callable[[], str] | None = None  # instead of a command; returns what to say

    def __str__(self) -> str:
        return f"$ panther {shlex.join(self.arguments)}" if self.act is None else f"# {' '.join(self.arguments)}"


def command(name: str, outputs: Sequence[Path], *arguments: object) -> DemoStep:
    """DemoStep that runs `panther` with these arguments."""
    return DemoStep(name, tuple(outputs), tuple(map(str, arguments)))


# imported once, by the server that the processes of all steps, and their workers, are forked from
PRELOAD = (
    "panther.engine",
    "h5py",
    "sklearn.linear_model",
    "panther.encoders.step",
    "timm",
    "panther.study.training",
    "panther.study.evaluate",
    "torch._dynamo",  # which torch imports, for two seconds of every worker, when an optimiser is first made
    "panther.explain.atlas_files",
    "panther.explain.attribution.draw",
    "panther.explain.concordance",
    "panther.explain.kaplan_meier",
    "panther.explain.maps",
    "panther.report.page",
    "panther.cli",
)


def share_server() -> None:
    """Have the workers of this process, which a fork server has forked, forked by that server: it has imported everything already.

    Python means to do so, but forgets in the child that the server runs, and starts another one.
    """
    from multiprocessing import forkserver, resource_tracker

    server: Any = forkserver._forkserver
    known = getattr(server, "_forkserver_address", None) and getattr(server, "_forkserver_authkey", b"none needed")
    if known and server._forkserver_pid is None:  # not started by this process
        server.ensure_running = forkserver.ensure_running = resource_tracker.ensure_running


def launch(step: DemoStep) -> int:
    """Run the product's own command in a process of its own, as if a user had typed it; returns its exit code."""
    process = process_context(*PRELOAD).Process(target=_typed, args=(step.arguments,))
    process.start()
    process.join()
    return int(process.exitcode or 0)


def _typed(arguments: Sequence[str]) -> None:
    share_server()
    sys.argv = ["panther", *arguments]
    sys.modules.pop("panther.__main__", None)  # of the demo's own command; Python warns of a module that is run again
    runpy.run_module("panther", run_name="__main__")


@dataclass
class Runner:
    """Runs steps in their order. Each one's key holds the key of the one before, so that a change runs all that follows anew."""

    folder: Path  # of the stamps
    say: Say
    launch: Callable[[DemoStep], int] = launch
    key: str = ""
    ran: int = 0
    seconds: float = 0.0

    def run(self, steps: Sequence[DemoStep]) -> None:
        """Run what is not done."""
        for step in steps:
            self._next(step)

    def _next(self, step: DemoStep) -> None:
        self.key = hashlib.sha256(json.dumps([self.key, __version__, step.name, *step.arguments]).encode()).hexdigest()
        stamp = self.folder / f"{step.name}.json"
        if self._is_done(step, stamp):
            self.say(f"{step}   (done already)")
            return
        self.say(f"\n{step}")
        start = time.perf_counter()
        summary = step.act() if step.act is not None else self._command(step)
        missing = [path for path in step.outputs if not path.exists()]
        if missing:
            raise InputError(f"`{str(step)[2:]}` ended without writing {missing[0]}; please report it.")
        seconds = round(time.perf_counter() - start, 1)
        self.say(f"{summary}  [{seconds} s]".strip())
        with atomic_write(stamp) as temporary:
            temporary.write_text(json.dumps({"key": self.key, "seconds": seconds}), encoding="utf-8")
        self.ran, self.seconds = self.ran + 1, self.seconds + seconds

    def _is_done(self, step: DemoStep, stamp: Path) -> bool:
        if not stamp.is_file() or not all(path.exists() for path in step.outputs):
            return False
        try:
            return bool(json.loads(stamp.read_text(encoding="utf-8"))["key"] == self.key)
        except (ValueError, KeyError, TypeError):
            return False  # not a stamp of ours: do it again

    def _command(self, step: DemoStep) -> str:
        code = self.launch(step)
        if code:
            raise InputError(
                f"`{str(step)[2:]}` ended with exit code {code}; what it said stands above. Run the demo again to go on from here."
            )
        return ""

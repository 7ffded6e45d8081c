"""Steps that run once: a step is skipped if its arguments, earlier steps and files are those of the last run."""

import hashlib
import json
import runpy
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from panther.errors import InputError
from panther.machine import process_context
from panther.storage.files import read_json, write_json
from panther.version import __version__

Say = Callable[[str], None]


@dataclass(frozen=True)
class DemoStep:
    """One command of `panther`, or a function of the demo."""

    name: str  # of its stamp
    outputs: tuple[Path, ...]  # files or folders that it writes
    arguments: tuple[str, ...]  # of `panther`; of a function, words on which the result depends
    act: Callable[[], object] | None = None  # the function; its result is printed

    def __str__(self) -> str:
        return f"$ panther {shlex.join(self.arguments)}" if self.act is None else f"# {' '.join(self.arguments)}"


def command(name: str, outputs: Sequence[Path], *arguments: object) -> DemoStep:
    """Step that runs `panther` with these arguments."""
    return DemoStep(name, tuple(outputs), tuple(map(str, arguments)))


# imported once, by the server from which the processes of all steps and their workers are forked
PRELOAD = (
    "panther.engine",
    "h5py",
    "sklearn.linear_model",
    "panther.encoders.step",
    "timm",
    "panther.study.training",
    "panther.study.evaluate",
    "torch._dynamo",  # torch imports it with the first optimiser, which takes two seconds in every worker
    "panther.explain.atlas_files",
    "panther.explain.attribution.draw",
    "panther.explain.concordance",
    "panther.explain.kaplan_meier",
    "panther.explain.maps",
    "panther.report.page",
    "panther.cli",
)


def share_server() -> None:
    """Have the workers of this forked process forked by the same fork server, which has imported everything.

    Python intends this, but does not know in the child that the server runs, and starts another one.
    """
    from multiprocessing import forkserver, resource_tracker

    server: Any = forkserver._forkserver
    known = getattr(server, "_forkserver_address", None) and getattr(server, "_forkserver_authkey", b"none needed")
    if known and server._forkserver_pid is None:  # not started by this process
        server.ensure_running = forkserver.ensure_running = resource_tracker.ensure_running


def launch(step: DemoStep) -> int:
    """Run a command in a new process, as if a user had typed it; returns its exit code."""
    process = process_context(*PRELOAD).Process(target=_typed, args=(step.arguments,))
    process.start()
    process.join()
    return int(process.exitcode or 0)


def _typed(arguments: Sequence[str]) -> None:
    share_server()
    sys.argv = ["panther", *arguments]
    sys.modules.pop("panther.__main__", None)  # of the command `demo`; Python warns of a module that is run again
    runpy.run_module("panther", run_name="__main__")


@dataclass
class Runner:
    """Runs steps in their order. The key of a step includes the previous one, so that a change repeats all later steps."""

    folder: Path  # of the stamps
    say: Say
    launch: Callable[[DemoStep], int] = launch
    key: str = ""
    ran: int = 0
    seconds: float = 0.0

    def run(self, steps: Sequence[DemoStep]) -> None:
        """Run the steps that are not done."""
        for step in steps:
            key = json.dumps([self.key, __version__, step.name, *step.arguments])
            self.key = hashlib.sha256(key.encode()).hexdigest()
            stamp, done = self.folder / f"{step.name}.json", ""
            with suppress(OSError, ValueError, KeyError, TypeError):  # no stamp, or a damaged one
                done = read_json(stamp)["key"]
            if done == self.key and all(path.exists() for path in step.outputs):
                self.say(f"{step}   (done already)")
                continue
            self.say(f"\n{step}")
            start, summary = time.perf_counter(), ""
            if step.act is not None:
                summary = str(step.act())
            elif code := self.launch(step):
                raise InputError(
                    f"`{str(step)[2:]}` ended with exit code {code}, see above. Run the demo again to resume."
                )
            missing = [path for path in step.outputs if not path.exists()]
            if missing:
                raise InputError(f"`{str(step)[2:]}` did not write {missing[0]}; please report it.")
            seconds = round(time.perf_counter() - start, 1)
            self.say(f"{summary}  [{seconds} s]".strip())
            write_json(stamp, {"key": self.key, "seconds": seconds})
            self.ran, self.seconds = self.ran + 1, self.seconds + seconds

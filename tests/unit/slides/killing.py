"""Run as a program: kills children that work on a job, with signal 9, at random moments. A process of its own, because it forks.

    python killing.py SLIDES JOBS ROUNDS KILLS SEED

In each of ROUNDS folders KILLS children are killed, then one finishes the job. A kill waits for a number of files, not of seconds, so that a busy
machine is hit as a quiet one is. In the folder
`shared` two work at the same time. Prints, as JSON, how many were killed while they worked and what the killed ones left behind.
"""

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import torch

from panther.encoders import load_encoder
from panther.encoders.pipeline import ExtractSettings
from panther.encoders.step import EncoderChoice, FeatureStep
from panther.slides import Job, PatchStep, TissueStep, list_slides, run_job
from panther.slides.slide import open_slide

SLOW = 0.005  # seconds a batch, so that a kill can fall between two


class Colours(torch.nn.Module):
    """Mean colours of the four quarters of a patch: an encoder that costs nothing."""

    size = 32

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        time.sleep(SLOW)
        return torch.nn.functional.adaptive_avg_pool2d(images, 2).flatten(1)


def work(slides: Path, folder: Path) -> None:
    """Tissue, patches and features, in this process."""
    patches = PatchStep(64)
    with FeatureStep(patches.folder, EncoderChoice("killing:Colours"), ExtractSettings(4, 1)) as features:
        run_job(list_slides([slides]).refs, [TissueStep(), patches, features], Job(folder))


def child(slides: Path, folder: Path) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            work(slides, folder)
        finally:
            os._exit(0)
    return pid


def wait(pid: int, reached: Callable[[], bool], moment: float) -> None:
    """Return a moment after the child has come that far, or when it has ended."""
    while not reached() and os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        time.sleep(0.001)
    time.sleep(moment)


def files_of(folder: Path) -> list[Path]:
    return [Path(place, name) for place, _, names in os.walk(folder) for name in names]


def main(slides: Path, jobs: Path, rounds: int, kills: int, seed: int) -> None:
    torch.set_num_threads(1)  # threads do not survive a fork
    open_slide(next(slides.iterdir())).close()
    load_encoder("killing:Colours")  # everything is imported before the first fork
    os.waitpid(child(slides, jobs / "whole"), 0)
    whole = len(files_of(jobs / "whole"))
    for pid in [child(slides, jobs / "shared") for _ in range(2)]:
        os.waitpid(pid, 0)
    chance, counts = random.Random(seed), Counter[str](killed=0)
    for number in range(rounds):
        folder = jobs / f"killed-{number}"
        for _ in range(kills):
            pid = child(slides, folder)
            enough = chance.randint(len(files_of(folder)), whole - 1)
            reached = lambda folder=folder, enough=enough: len(files_of(folder)) >= enough  # noqa: E731
            wait(pid, reached, chance.uniform(0, 0.02))
            os.kill(pid, signal.SIGKILL)
            if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL:
                has_features = any(path.parent.name.startswith("features_") for path in files_of(folder))
                counts += Counter({"killed": 1, "before features": not has_features})
        os.waitpid(child(slides, folder), 0)  # not in this process: torch, once it has worked, survives no fork
    print(json.dumps(counts))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:]))

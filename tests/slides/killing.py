"""Run as a program: kills children that work on a job, with signal 9, at random moments. A process of its own, because it forks.

    python killing.py SLIDES JOBS ROUNDS KILLS SEED

In each of ROUNDS folders KILLS children are killed, then one finishes the job; every fourth kill waits for the first rows of features, so that
these are hit on a busy machine too. In the folder `shared` two work at the same time. Prints, as
JSON, how many were killed while they worked and what the killed ones left behind.
"""

import json
import os
import random
import signal
import sys
import time
from collections import Counter
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


def wait(seconds: float, folder: Path, for_rows: bool) -> None:
    """Sleep, at first until a slide's features have begun where that is asked for."""
    deadline = time.monotonic() + 10
    while for_rows and not left_behind(folder)["rows"] and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(seconds * 0.05 if for_rows else seconds)


def left_behind(folder: Path) -> Counter[str]:
    """What is unfinished in a folder."""
    files = [Path(place, name) for place, _, names in os.walk(folder) for name in names]
    begun = {path for path in files if path.name == "rows" and path.exists() and path.stat().st_size}
    return Counter(
        {
            "locks": any(path.suffix == ".lock" for path in files),
            "rows": bool(begun),
            "before features": not any(path.parent.name.startswith("features_") for path in files),
        }
    )


def main(slides: Path, jobs: Path, rounds: int, kills: int, seed: int) -> None:
    torch.set_num_threads(1)  # threads do not survive a fork
    open_slide(next(slides.iterdir())).close()
    load_encoder("killing:Colours")  # everything is imported before the first fork
    start = time.perf_counter()
    os.waitpid(child(slides, jobs / "whole"), 0)
    duration = time.perf_counter() - start
    for pid in [child(slides, jobs / "shared") for _ in range(2)]:
        os.waitpid(pid, 0)
    chance, told = random.Random(seed), Counter[str](killed=0)
    for number in range(rounds):
        folder = jobs / f"killed-{number}"
        for kill in range(kills):
            pid = child(slides, folder)
            wait(chance.uniform(0.02, 1.0) * duration / kills, folder, (number * kills + kill) % 4 == 3)
            os.kill(pid, signal.SIGKILL)
            if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL:
                told += Counter(killed=1) + left_behind(folder)
        os.waitpid(child(slides, folder), 0)  # not in this process: torch, once it has worked, survives no fork
    print(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:]))

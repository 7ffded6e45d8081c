"""Run as a program: kills children that work on a job, with signal 9, at random moments. A process of its own, because it forks.

    python killing.py SLIDES JOBS ROUNDS KILLS SEED

In each of ROUNDS folders KILLS children are killed, then one finishes the job. Prints how many were killed while they worked.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

from panther.slides import Job, PatchStep, TissueStep, list_slides, run_job
from panther.slides.slide import open_slide


def work(slides: Path, folder: Path) -> None:
    run_job(list_slides([slides]).refs, [TissueStep(), PatchStep(64)], Job(folder))


def child(slides: Path, folder: Path) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            work(slides, folder)
        finally:
            os._exit(0)
    return pid


def main(slides: Path, jobs: Path, rounds: int, kills: int, seed: int) -> None:
    open_slide(next(slides.iterdir())).close()  # everything is imported before the first fork
    start = time.perf_counter()
    os.waitpid(child(slides, jobs / "whole"), 0)
    duration = time.perf_counter() - start
    chance, killed = random.Random(seed), 0
    for number in range(rounds):
        for _ in range(kills):
            pid = child(slides, jobs / f"killed-{number}")
            time.sleep(chance.uniform(0.02, 1.0) * duration / kills)
            os.kill(pid, signal.SIGKILL)
            killed += os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
        work(slides, jobs / f"killed-{number}")
    print(killed)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:]))

"""One slide that is larger than any other: all cores on it, and the same rows as one slide per core with a process for each.

python benchmarks/huge_slide.py             # about 1 minute, 3 GB of temporary files
python benchmarks/huge_slide.py --quick     # does it run? its figures mean nothing
"""

import argparse
import os
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from _harness import interleaved, machine, table
from _passes import DIM, slide
from embed import plain_in_turn
from panther.aggregators.embed import embed_bags
from panther.engine import Work, open_executor
from panther.machine import allow_threads
from panther.storage.bags import BagRef, list_bags
from panther.types import Prototypes


def compare(patches: int) -> None:
    """Take turns on one slide, then see that the number of threads has not changed a byte."""
    cores = len(os.sched_getaffinity(0))
    torch.set_num_threads(cores)
    centroids = slide("one-hot", 16)[1]
    ready = Prototypes(centroids)
    with tempfile.TemporaryDirectory() as folder, open_executor(cores) as pool:
        whole, parts = write_slides(Path(folder), patches, cores)
        sides: dict[str, Callable[[], Any]] = {
            "plain, one process, all threads": partial(plain_in_turn, whole, centroids),
            "ours, one process, one thread": partial(with_threads, 1, whole, ready),
            "ours, one process, all threads": partial(with_threads, cores, whole, ready),
            "ours, the only slide of the pool": partial(embed_bags, whole, ready, "panther", {}, work=Work(pool)),
            "ours, a slide per core, a process for each": partial(
                embed_bags, parts, ready, "panther", {}, work=Work(pool)
            ),
        }
        seconds = interleaved(sides, 3)
        found = {call().vectors.tobytes() for call in list(sides.values())[1:4]}
    rows = [[name, f"{s:.2f}", f"{patches / s / 1e6:.2f}"] for name, s in seconds.items()]
    table(
        f"One slide of {patches:,} x {DIM} float32 from npy, {cores} cores", ["", "seconds", "million patches/s"], rows
    )
    print("\nThe whole slide on one thread and on all:", "the same bytes." if len(found) == 1 else "OTHER BYTES.")


def write_slides(folder: Path, patches: int, cores: int) -> tuple[list[BagRef], list[BagRef]]:
    """One whole slide, and its rows as one slide per core."""
    for name in ("whole", "parts"):
        (folder / name).mkdir()
    parts = [slide("one-hot", patches // cores, number)[0].numpy() for number in range(cores)]
    for number, part in enumerate(parts):
        np.save(folder / "parts" / f"part_{number}.npy", part)
    np.save(folder / "whole" / "slide.npy", np.concatenate(parts))
    return list(list_bags(folder / "whole").refs), list(list_bags(folder / "parts").refs)


def with_threads(threads: int, refs: Sequence[BagRef], prototypes: Prototypes) -> Any:
    with allow_threads(threads):
        return embed_bags(refs, prototypes, "panther", {})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it runs")
    options = parser.parse_args()
    print(machine("panther-wsi"))
    compare(2000 if options.quick else 400_000)


if __name__ == "__main__":
    main()

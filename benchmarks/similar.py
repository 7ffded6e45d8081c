"""Patches most similar to one, over a cohort: what the viewer does, beside the same product in plain numpy and scikit-learn.

`python benchmarks/similar.py` needs no arguments (2 GB of disk, 12 GB of memory); `--quick` takes a tenth. The cohort is a folder of feature
files of 1024 numbers in float16, as `panther slides` (contiguous) and TRIDENT (one row a chunk) write them, in the page cache. The viewer's
side is its whole answer: query, search in worker processes, and the places of what was found. The others' features lie in memory as
float32 already, which is not counted; "numpy, from the files" reads what the viewer reads. All name the same patches, or the script fails.
"""

import argparse
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import psutil

import _harness as harness
from panther.engine import open_executor
from panther.storage.readers import open_bag
from panther.viewer.contents import find_contents
from panther.viewer.pages.patch import corners_of, search, searched_patch
from panther.viewer.workbench import Workbench

DIM, PER_SLIDE, K = 1024, 15_000, 12
TARGET = 3.0  # seconds over a million patches
LAYOUTS = {"contiguous": None, "one row a chunk": (1, DIM)}
QUERY = "S000", 77


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the patches")
    parser.add_argument("--patches", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    patches = given.patches // 10 if given.quick else given.patches
    print(harness.machine("scikit-learn", "h5py", "flask"))
    rows, seconds = [], 0.0
    for layout in LAYOUTS:
        with tempfile.TemporaryDirectory() as name:
            folder = make_cohort(Path(name) / "cohort", patches, layout)
            measured = measure(folder, given.rounds, peers=layout == "contiguous")
            megabytes = harness.peak_extra(prepared, folder)
            rows += [
                [layout, side, f"{s:.2f}", f"{patches / s / 1e6:.2f}", m] for side, s, m in named(measured, megabytes)
            ]
            seconds = max(seconds, measured["panther"])
    title = f"The {K} most similar of {patches:,} patches x {DIM}, float16, {-(-patches // PER_SLIDE)} slides"
    harness.table(title, ["files", "side", "seconds", "million patches/s", "extra memory, MB"], rows)
    target = TARGET if patches == 1_000_000 else None
    harness.table(
        "Target",
        ["what", "target", "found", ""],
        [harness.verdict("slower of both layouts", seconds, target, at_most=True, unit=" s")],
    )


def named(measured: dict[str, float], megabytes: float) -> list[tuple[str, float, str]]:
    return [(side, s, f"{megabytes:.0f}" if side == "panther" else "-") for side, s in measured.items()]


def make_cohort(folder: Path, patches: int, layout: str) -> Path:
    """Random patches around a few hundred centres, so that some are alike."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    centres, noise = rng.standard_normal((300, DIM), np.float32), rng.standard_normal((PER_SLIDE, DIM), np.float32)
    for number, start in enumerate(range(0, patches, PER_SLIDE)):
        count = min(PER_SLIDE, patches - start)
        # the same noise, shifted: a thousand million random numbers take longer than everything else here
        x = centres[rng.integers(len(centres), size=count)] + np.roll(noise[:count], number, axis=1)
        at = np.arange(count)
        with h5py.File(folder / f"S{number:03d}.h5", "w") as file:
            file.create_dataset("features", data=x.astype(np.float16), chunks=LAYOUTS[layout]).attrs["encoder"] = "uni"
            coords = file.create_dataset("coords", data=np.stack([at % 150, at // 150], 1) * 256)
            coords.attrs.update({"patch_size_level0": 256, "patch_size": 256, "level0_magnification": 20})
    return folder


def measure(folder: Path, rounds: int, peers: bool) -> dict[str, float]:
    """Median seconds of each side, in turns."""
    with open_executor(0) as executor:
        bench = Workbench(find_contents(folder), executor=executor)
        sides: dict[str, Callable[[], Any]] = {"panther": lambda: ours(bench)}
        if peers:
            sides |= rivals(folder)
        answers = {side: call() for side, call in sides.items()}
        for side, found in answers.items():
            assert found == answers["panther"], f"{side} names other patches"
        return harness.interleaved(sides, rounds)


def ours(bench: Workbench) -> list[tuple[str, int]]:
    """What the route does."""
    (found,) = deque(search(bench, searched_patch(bench, *QUERY, K), list(bench.contents.slides.values())), maxlen=1)
    assert not found.failures
    assert len(corners_of(bench, found.hits)) == K
    return [(hit.slide, hit.patch) for hit in found.hits]


def rivals(folder: Path) -> dict[str, Callable[[], Any]]:
    """The same patches by other means; those that need all features in float32 only where memory allows."""
    names = sorted(path.stem for path in folder.iterdir())
    lengths = [len(open_bag(folder / f"{name}.h5")) for name in names]
    slide = np.repeat(np.arange(len(names)), lengths)
    row = np.concatenate([np.arange(length) for length in lengths])
    itself = int(np.flatnonzero((slide == names.index(QUERY[0])) & (row == QUERY[1]))[0])

    def said(order: np.ndarray) -> list[tuple[str, int]]:
        return [(names[slide[n]], int(row[n])) for n in order if n != itself][:K]

    def best(similarity: np.ndarray) -> list[tuple[str, int]]:
        top = np.argpartition(-similarity, K + 1)[: K + 1]
        return said(top[np.argsort(-similarity[top])])

    def from_files() -> list[tuple[str, int]]:
        query = features(folder, QUERY[0])[QUERY[1]]
        parts = []
        for name in names:
            x = features(folder, name)
            parts.append(x @ query / np.linalg.norm(x, axis=1))
        return best(np.concatenate(parts))

    sides: dict[str, Callable[[], Any]] = {"numpy float32, from the files": from_files}
    needed = 4 * len(row) * DIM * 4  # scikit-learn keeps a normalised copy, and makes another
    if psutil.virtual_memory().available < needed:
        print(f"Less than {needed / 2**30:.0f} GB of memory are free: no peers that need all features in memory.")
        return sides
    x = np.concatenate([features(folder, name) for name in names])
    from sklearn.neighbors import NearestNeighbors

    nearest = NearestNeighbors(n_neighbors=K + 1, metric="cosine", algorithm="brute").fit(x)
    sides["numpy float32, in memory"] = lambda: best(x @ x[itself] / np.linalg.norm(x, axis=1))
    sides["scikit-learn brute, in memory"] = lambda: said(nearest.kneighbors(x[itself][None])[1][0])
    return sides


def features(folder: Path, name: str) -> np.ndarray:
    """Features of one slide as a notebook would read them."""
    with h5py.File(folder / f"{name}.h5") as file:
        return file["features"][()].astype(np.float32)


@contextmanager
def prepared(folder: Path) -> Iterator[Callable[[], Any]]:
    """Search with warm workers, for its memory."""
    with open_executor(0) as executor:
        bench = Workbench(find_contents(folder), executor=executor)
        ours(bench)
        yield lambda: ours(bench)


if __name__ == "__main__":
    main()

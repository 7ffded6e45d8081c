"""Slides most like one slide among 100,000: what `panther similar` does on disk, beside the same product in plain numpy in memory.

`python benchmarks/retrieval.py` needs no arguments (0.9 GB of disk, 2 GB of memory); `--quick` takes a tenth. Embeddings are 100,000 x 1,992 numbers
in float16 (8 prototypes of 124 dimensions), opened once, in the page cache, on as
many threads as there are cores. The peer has all vectors in memory as float32, of length 1, which is not counted. Both name
the same slides, or the script fails. Then all slides of 2,000 as queries, which is what `panther retrieval` does.
"""

import argparse
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch

import _harness as harness
from panther.search.neighbours import WAYS, searchable
from panther.statistics import Apart
from panther.storage.embeddings import Embeddings, EmbeddingTable, open_embeddings, write_embeddings
from panther.types import Prototypes
from panther.verbs.search import retrieval

SLIDES, C, D, K = 100_000, 8, 124, 10  # C (1 + 2 D) = 1,992 numbers
TARGET = 1.0  # seconds a query


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the slides")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    slides = SLIDES // 10 if given.quick else SLIDES
    print(harness.machine("h5py", "anndata"))
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "slides.h5ad"
        table = make_table(slides)
        write_embeddings(replace(table, vectors=table.vectors.astype(np.float16)), path)
        opened = open_embeddings(path)
        peer = in_numpy(opened)
        assert set(peer()) == set(ask(opened, "cosine")), "numpy names other slides"
        sides = {on: partial(ask, opened, on) for on in WAYS}
        seconds = harness.interleaved({**sides, "cosine, numpy in memory": peer}, given.rounds)
    title = f"The {K} slides most like one of {slides:,}, {C * (1 + 2 * D):,} numbers each, float16, on disk"
    rows = [[what, f"{1000 * s:.0f}", f"{slides / s / 1e6:.2f}"] for what, s in seconds.items()]
    harness.table(title, ["compared on", "ms a query", "million slides/s"], rows)
    target = TARGET if slides == SLIDES else None
    worst = max(seconds[on] for on in WAYS)
    harness.table(
        "Target",
        ["what", "target", "found", ""],
        [harness.verdict("slowest of all ways", worst, target, at_most=True, unit=" s")],
    )
    all_against_all(200 if given.quick else 2000)


def make_table(slides: int) -> EmbeddingTable:
    """Slides of a few kinds; many lack a prototype."""
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.full(C, 0.3), slides).astype(np.float32)
    kinds = rng.normal(size=(40, C, D)).astype(np.float32)
    vectors = np.empty((slides, C, 1 + 2 * D), np.float32)
    vectors[:, :, 0] = weights
    vectors[:, :, 1 : 1 + D] = kinds[rng.integers(40, size=slides)]
    vectors[:, :, 1 : 1 + D] += 0.3 * rng.standard_normal((slides, C, D), np.float32)
    vectors[:, :, 1 + D :] = rng.uniform(0.5, 1.5, (slides, C, D)).astype(np.float32)
    statistics = [("weight", -1), *((what, j) for what in ("mean", "variance") for j in range(D))]
    columns = [(c, what, j) for c in range(C) for what, j in statistics]
    names = [f"S{n:06}" for n in range(slides)]
    return EmbeddingTable(
        names, vectors.reshape(slides, -1), {}, weights, columns, Prototypes(torch.zeros(C, D)), {"method": "panther"}
    )


def ask(opened: Embeddings, on: str, query: int = 77) -> list[int]:
    """Rows of the nearest slides."""
    way = searchable(opened, on)
    apart = [Apart(np.array([query]), np.arange(len(opened.samples)))]
    return way.nearest(way.rows[query : query + 1].double().numpy(), K, apart)[0].rows.tolist()


def in_numpy(opened: Embeddings) -> Callable[[], list[int]]:
    """The plain product over vectors that lie in memory, as float32 and of length 1."""
    rows = opened.rows[:].float().numpy()
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)

    def nearest() -> list[int]:
        likeness = rows @ rows[77]
        likeness[77] = -np.inf
        best = np.argpartition(-likeness, K)[:K]
        return best[np.argsort(-likeness[best])].tolist()

    return nearest


def all_against_all(slides: int) -> None:
    """Every slide as a query."""
    table = make_table(slides)
    labels = pd.DataFrame(
        {"slide_id": table.samples, "case_id": table.samples, "label": [f"L{n % 5}" for n in range(slides)]}
    )
    rows = [
        [on, f"{harness.timed(partial(retrieval, table, labels, 'label', on=on))[0]:.1f}"]
        for on in ("pi", "cosine", "mixture")
    ]
    harness.table(f"Retrieval: {slides:,} slides, each a query, 1,000 resamples", ["compared on", "seconds"], rows)


if __name__ == "__main__":
    main()

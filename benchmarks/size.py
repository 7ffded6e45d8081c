"""The paper's 11,000 slides of 32,784 numbers as one file: its size in float32 and float16, and what float16 changes.

`python benchmarks/size.py` needs no arguments; it writes 1.4 GB to a temporary folder.
"""

import tempfile
from pathlib import Path

import numpy as np
import torch

import _harness as harness
from panther.aggregators import build
from panther.storage.embeddings import EmbeddingTable, write_embeddings
from panther.types import Prototypes

SLIDES, C, DIM = 11_000, 16, 1024


def main() -> None:
    print(harness.machine("anndata", "h5py"))
    prototypes = Prototypes(torch.randn(C, DIM, generator=torch.Generator().manual_seed(0)))
    columns = build("panther", prototypes).columns()
    vectors = np.random.default_rng(0).standard_normal((SLIDES, len(columns)), dtype=np.float32)
    names, weights = [f"slide-{i:05d}" for i in range(SLIDES)], np.full((SLIDES, C), 1 / C)
    table = EmbeddingTable(names, vectors, {"n_patches": [15_000] * SLIDES}, weights, columns, prototypes, {})
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for dtype in ("float32", "float16"):
            path = Path(folder) / f"{dtype}.h5ad"
            error = write_embeddings(table, path, dtype)
            rows.append([dtype, f"{path.stat().st_size / 1e9:.3f}", f"{error:.1e}"])
    header = ["type", "GB", "largest change, of a column's largest"]
    harness.table(f"{SLIDES:,} slides of {len(columns):,} numbers as .h5ad", header, rows)


if __name__ == "__main__":
    main()

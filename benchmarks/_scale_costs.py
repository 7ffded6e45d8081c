"""What 1,000,000 slides of 15,000 patches take at each step: rates measured here, those of the GPU machine as `--only slides` gave them."""

import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch

import _harness as harness
from _tiled_slides import tissue_tiles, write_slide
from panther import fit_prototypes
from panther.aggregators.embed import embed_bags
from panther.slides import Job, PatchStep, TissueStep, list_slides, run_job
from panther.storage.bags import list_bags

SLIDES, PATCHES, DIM, C = 1_000_000, 15_000, 1024, 16
# one H200 and 16 cores, `benchmarks/scale.py --only slides --device cuda --encoder uni` (docs/benchmarks.md)
ENCODED, DECODED, TILE_BYTES = 2718.0, 6767.0 / 16, 23_754.0


@dataclass(frozen=True)
class Rates:
    """Seconds of one core, measured."""

    tissue: float  # tissue and patches of one slide
    embed: float  # one slide from its file to its mixture
    lloyd: float  # one pass of K-means over one slide
    row_bytes: float  # of an embedding


def measured(patches: int) -> Rates:
    """Measure each step on one core, with files in the page cache."""
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "bags").mkdir()
        for number in range(4):
            np.save(folder / "bags" / f"{number}.npy", rng.normal(size=(patches, DIM)).astype("f2"))
        bags = list_bags(folder / "bags")
        prototypes = fit_prototypes(bags, C, passes=0, sample=2000, restarts=1)
        embed, table = _best(partial(embed_bags, bags.refs, prototypes, "panther", {}))
        fit = partial(fit_prototypes, bags, C, sample=2000, restarts=1)
        lloyd = (_best(partial(fit, passes=3))[0] - _best(partial(fit, passes=0))[0]) / 3
        (folder / "slides").mkdir()
        for number in range(2):
            write_slide(folder / "slides" / f"{number}.tif", tissue_tiles(64), patches, seed=number)
        refs = list_slides([folder / "slides"]).refs
        start = time.perf_counter()
        run_job(refs, [TissueStep(), PatchStep()], Job(folder / "job"))
        tissue = (time.perf_counter() - start) / len(refs)
    return Rates(tissue, embed / 4, lloyd / 4, table.vectors.shape[1] * 4.0)


def _best(call):
    runs = [harness.timed(call) for _ in range(3)]
    return min(seconds for seconds, _ in runs), runs[0][1]


def costs_of_a_million(*, quick: bool = False) -> None:
    """Print hours, storage and network of each step."""
    torch.set_num_threads(1)
    one = measured(300 if quick else PATCHES)
    patches = SLIDES * PATCHES
    slide, features, embedding = patches * TILE_BYTES, patches * DIM * 2, SLIDES * one.row_bytes
    gpu_hours, decode_hours = patches / ENCODED / 3600, patches / DECODED / 3600
    rows = [
        ["slide files (JPEG, 0.5 um/px, tissue)", "-", "-", _size(slide), "-"],
        ["tissue and patches", _hours(one.tissue), "-", _size(SLIDES * 2e5), "a hundredth of the slides"],
        ["decoding", f"{decode_hours:,.0f}", "-", "-", _size(slide)],
        ["encoding (UNI, bfloat16)", "-", f"{gpu_hours:,.0f}", _size(features), _size(features)],
        ["prototypes, 3 passes", _hours(3 * one.lloyd), "-", "64 kB", _size(3 * features)],
        ["embeddings (float32)", _hours(one.embed), "-", _size(embedding), _size(features + embedding)],
    ]
    harness.table(
        f"{SLIDES:,} slides of {PATCHES:,} patches ({patches / 1e9:.0f} billion)",
        ["step", "core hours", "GPU hours", "storage", "over the network"],
        rows,
    )
    print(
        f"\nMeasured here, one core: tissue and patches {one.tissue:.2f} s a slide, embedding {one.embed * 1000:.0f} ms, "
        f"a pass of K-means {one.lloyd * 1000:.0f} ms."
    )


def _hours(seconds: float) -> str:
    return f"{SLIDES * seconds / 3600:,.0f}"


def _size(count: float) -> str:
    return f"{count / 1e12:,.1f} TB" if count >= 1e12 else f"{count / 1e9:,.0f} GB"

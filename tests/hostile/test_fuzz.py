"""Mutants of every format that the package reads, seeded: feature files are embedded together, and each must come out or be named;
every other file is damaged alone, and the command that reads it must end in time, with a sentence and without a bug."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from hostile.damage import mutate
from hostile.judging import Finished, assert_honest, run_apart
from hostile.lab import Arguments
from storage.layouts import LAYOUTS, features, write


def fuzz_bags(folder: Path, prototypes: Path, rng: random.Random, count: int) -> tuple[list[str], Finished]:
    """Embed ``count`` mutants of all layouts and one sound bag; names of those that neither came out nor were named."""
    bags = folder / "bags"
    bags.mkdir()
    write(bags, "npy", *features(23, 6), name="sound")
    names = []
    for number in range(count):
        layout = rng.choice(list(LAYOUTS))
        names.append(f"m{number:03d}")
        path = write(bags, layout, *features(23, 6, seed=number), name=names[-1])
        path.write_bytes(mutate(path.read_bytes(), rng))
    arguments = ("embed", "bags", "-p", prototypes, "-o", "s.npz", "-j", "1", "--json", "--allow-mixed-resolution")
    done = run_apart(arguments, folder, limit=600, env={"PANTHER_READ_LIMIT": "5"})
    assert_honest(done)
    report = json.loads(done.out)
    there = {*report["observations"]["sample"], *report["failures"]}
    return [name for name in names if name not in there], done


def test_every_one_of_a_hundred_damaged_feature_files_comes_out_or_is_named(tmp_path, sound_lab):
    lost, done = fuzz_bags(tmp_path, sound_lab / "p.safetensors", random.Random(1), 100)
    assert not lost, done.text
    assert done.code == 1


def _names(lab: Path) -> None:
    (lab / "names.yaml").write_text("C0: tumour\nC1: stroma\n")


def _contours(lab: Path) -> None:
    ring = [[0, 0], [900, 0], [900, 900], [0, 900], [0, 0]]
    shape = {"type": "Feature", "properties": {}, "geometry": {"type": "Polygon", "coordinates": [ring]}}
    (lab / "c.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": [shape]}))


def _slide(lab: Path) -> None:
    rng = np.random.default_rng(0)
    pixels = rng.integers(90, 200, (512, 512, 3)).astype(np.uint8)
    (lab / "slides").mkdir()
    Image.fromarray(pixels).save(lab / "slides" / "a.tif", tile=True)


def _parquet(lab: Path) -> None:
    pd.read_csv(lab / "table.csv", dtype=str).to_parquet(lab / "table.parquet")


EMBED = ("embed", "feats", "-p", "p.safetensors", "-o", "new.npz", "-j", "1")
# what is damaged, how it is made where the lab has none, and a command that reads it
OTHERS: dict[str, tuple[str, Callable[[Path], None] | None, Arguments]] = {
    "prototypes": ("p.safetensors", None, EMBED),
    "model": ("model", None, ("predict", "model", "feats", "-o", "y.csv", "-j", "1")),
    "embeddings": ("s.h5ad", None, ("shift", "s.h5ad", "--site-column", "subtype", "--permutations", "9")),
    "CSV table": ("table.csv", None, (*EMBED, "--table", "table.csv")),
    "parquet table": ("table.parquet", _parquet, (*EMBED, "--table", "table.parquet")),
    "study": ("study.yaml", None, ("run", "study.yaml", "-o", "study", "-j", "1")),
    "names": ("names.yaml", _names, ("map", "feats/s05.h5", "-p", "p.safetensors", "-o", "m", "--names", "names.yaml")),
    "contours": ("c.geojson", _contours, ("map", "feats/s05.h5", "-p", "p.safetensors", "-o", "m", "--contours", "c.geojson")),
    "labels": ("labels.csv", None, ("concordance", "feats", "-p", "p.safetensors", "-o", "a", "--patch-labels", "labels.csv", "--no-maps")),
    "slide": ("slides/a.tif", _slide, ("slides", "slides", "-o", "job", "--slide-mpp", "0.5", "--patch-size", "64", "-j", "1")),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("target", OTHERS)
def test_a_damaged_file_ends_the_command_in_time_and_in_a_sentence(lab, target, seed):
    victim, make, arguments = OTHERS[target]
    if make is not None:
        make(lab)
    (lab / victim).write_bytes(mutate((lab / victim).read_bytes(), random.Random(seed)))
    assert_honest(run_apart(arguments, lab, limit=600, env={"PANTHER_READ_LIMIT": "5"}))

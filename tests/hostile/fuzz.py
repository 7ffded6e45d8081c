"""Mutate every format that the package reads and judge what the commands make of it. Bounded by time, seeded: `make fuzz`.

    python tests/hostile/fuzz.py --seconds 300 --seed 0

Feature files are damaged by the dozen and embedded together: each must come out or be named. Everything else is damaged alone, and the
command that reads it must end in time, with a sentence and without a bug.
"""

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from hostile.judging import BUGS, Finished, assert_honest, run_apart
from hostile.lab import Arguments, make_lab
from storage.layouts import LAYOUTS, features, write

EXTREMES = (b"\x00" * 4, b"\xff" * 4, b"\xff\xff\xff\x7f", b"\x00\x00\x00\x80", b"\x01\x00\x00\x00")


def mutate(content: bytes, rng: random.Random) -> bytes:
    """One of the ways in which files go wrong; mostly near the beginning, where headers are."""
    if not content:
        return b"\x00"
    data = bytearray(content)
    reach = len(data) if rng.random() < 0.5 else min(len(data), 2048)
    place = rng.randrange(reach)
    kind = rng.choice(("flip", "flip", "flip", "number", "cut", "zeros", "swap", "insert", "remove"))
    if kind == "flip":
        for _ in range(rng.choice((1, 1, 2, 4, 16))):
            data[rng.randrange(reach)] = rng.choice((0, 255, rng.randrange(256)))
    elif kind == "number":
        data[place : place + 4] = rng.choice(EXTREMES)
    elif kind == "cut":
        del data[place:]
    elif kind == "zeros":
        data[place : place + 512] = bytes(min(512, len(data) - place))
    elif kind == "swap":
        other = rng.randrange(len(data) // 64 + 1) * 64
        place -= place % 64
        data[place : place + 64], data[other : other + 64] = data[other : other + 64], data[place : place + 64]
    elif kind == "insert":
        data[place:place] = bytes(rng.randrange(256) for _ in range(rng.choice((1, 8))))
    else:
        del data[place : place + rng.choice((1, 8, 64))]
    return bytes(data)


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
    told = json.loads(done.out)
    there = {*told["observations"]["sample"], *told["failures"]}
    return [name for name in names if name not in there], done


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


def fuzz_other(lab: Path, target: str, rng: random.Random) -> Finished:
    """Damage one file of a copy of the lab and run the command that reads it."""
    victim, make, arguments = OTHERS[target]
    if make is not None:
        make(lab)
    (lab / victim).write_bytes(mutate((lab / victim).read_bytes(), rng))
    done = run_apart(arguments, lab, limit=600, env={"PANTHER_READ_LIMIT": "5"})
    assert_honest(done)
    return done


def shortened(text: str) -> str:
    """First lines, and those that show a bug."""
    lines = text.splitlines()
    return "\n".join(
        dict.fromkeys([*lines[:2], *(line for line in lines if any(bug in line for bug in BUGS)), *lines[-3:]])
    )


def main() -> None:
    """Fuzz until the time is over; print what was tried and every finding, and exit with 1 where there is one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="folder to keep what was found in")
    given = parser.parse_args()
    rng, tried, findings = random.Random(given.seed), Counter[str](), 0
    end = time.monotonic() + given.seconds
    with tempfile.TemporaryDirectory() as place:
        sound = make_lab(Path(place) / "sound")
        turn = 0
        while time.monotonic() < end:
            target = "feature files" if turn % 3 == 0 else list(OTHERS)[turn * 7 % len(OTHERS)]
            folder = Path(place) / f"turn{turn}"
            turn += 1
            state = rng.getstate()
            try:
                if target == "feature files":
                    folder.mkdir()
                    tried[target] += 60
                    lost, done = fuzz_bags(folder, sound / "p.safetensors", rng, 60)
                    assert not lost, f"lost in silence: {lost}\n{done.text}"
                else:
                    shutil.copytree(sound, folder)
                    tried[target] += 1
                    fuzz_other(folder, target, rng)
            except AssertionError as error:
                findings += 1
                print(f"FOUND in {target} (turn {turn}):\n{shortened(str(error))}\n", flush=True)
                if given.keep is not None:
                    shutil.copytree(folder, given.keep / f"{target.replace(' ', '-')}-{turn}", dirs_exist_ok=True)
                rng.setstate(state)
                rng.random()
            shutil.rmtree(folder, ignore_errors=True)
    print(f"{sum(tried.values())} mutants (seed {given.seed}): {dict(tried)}; {findings} findings")
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()

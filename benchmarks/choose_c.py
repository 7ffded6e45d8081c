"""`panther choose-c` on real tissue: how many prototypes come back in both halves of a cohort, and what more of them would buy.

    python benchmarks/choose_c.py --cut TILES crops/               # TILES: a folder a class, e.g. LC25000's aca, normal, scc
    panther slides crops/ -o job --encoder lite0 --dtype float32   # nine overlapping crops of 128 px a tile
    python benchmarks/choose_c.py job/tiles/features_lite0

Tiles are dealt out to 74 made-up patients, each with normal tissue and one of the two tumours; all crops of a tile belong to one patient.
"""

import argparse
from pathlib import Path

import h5py
import numpy as np
import torch
from PIL import Image

import _harness as harness
from panther.prototypes import KMeansSettings
from panther.prototypes.choose import compare_numbers
from panther.types import Bag

SIDE, STARTS = 128, (0, 48, 96)  # of the crops in a tile of 224 px
FIRST = "aca"  # tumour of every second patient; the others have the other one


def cut(tiles: Path, folder: Path) -> None:
    """Write overlapping crops of every tile."""
    for path in sorted(tiles.rglob("*.jpg")):
        picture = Image.open(path).convert("RGB")
        (folder / path.parent.name).mkdir(parents=True, exist_ok=True)
        for number, (x, y) in enumerate((x, y) for x in STARTS for y in STARTS):
            crop = picture.crop((x, y, x + SIDE, y + SIDE))
            crop.save(folder / path.parent.name / f"{path.stem}_{number}.png", compress_level=1)


def deal(path: Path, patients: int, seed: int = 0) -> list[Bag]:
    """Bags of made-up patients from the bags of `panther slides crops/`, one of each class."""
    features, names = [], []
    for bag in sorted(path.glob("*.h5")):
        with h5py.File(bag, "r") as file:
            features.append(file["features"][...].astype(np.float32))
            names += [f"{bag.stem}/{name}" for name in file["tiles"].asstr()[:]]
    x = torch.from_numpy(np.concatenate(features))
    tiles = np.array([name.rsplit(".", 1)[0].split("_")[0] for name in names])
    rng = np.random.default_rng(seed)
    has_first = rng.permutation(np.arange(patients) % 2) == 0
    owner = {}
    for tile in np.unique(tiles):
        kind = tile.split("/")[0]
        allowed = np.full(patients, True) if kind == "normal" else has_first == (kind == FIRST)
        owner[tile] = int(rng.choice(np.flatnonzero(allowed)))
    index = torch.tensor([owner[tile] for tile in tiles])
    return [Bag(f"patient-{p:02}", x[index == p]) for p in index.unique().tolist()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("features", type=Path, nargs="?", help="folder of bags, one of each class")
    parser.add_argument("--cut", type=Path, nargs=2, metavar=("TILES", "CROPS"), help="only cut tiles into crops")
    parser.add_argument("--patients", type=int, default=74)
    parser.add_argument("--range", type=int, nargs=2, default=(2, 32))
    options = parser.parse_args()
    if options.cut:
        cut(*options.cut)
        return
    if options.features is None:
        parser.error("give a file of features, or --cut")
    print(harness.machine("scikit-learn"))
    bags = deal(options.features, options.patients)
    seconds, choice = harness.timed(lambda: compare_numbers(bags, tuple(options.range), KMeansSettings(restarts=3)))
    rows = [
        [
            c.n_prototypes,
            f"{c.come_back:.1f} ± {c.come_back_spread:.1f}",
            f"{c.stability_halves:.2f}",
            f"{c.stability_seeds:.2f}",
            f"{c.explained:.1%}",
            f"{c.gain:+.1%} ± {c.gain_spread:.1%}" if c.gain else "",
            f"{c.held_out:.1f} ± {c.held_out_error:.1f}",
        ]
        for c in choice.candidates
    ]
    header = ["C", "come back", "halves agree", "seeds agree", "explained", "more than the row above", "likelihood"]
    size = sum(len(bag.features) for bag in bags)
    harness.table(f"{size:,} crops of {len(bags)} made-up patients, {seconds:.0f} s", header, rows)
    print("", choice.sentence, *choice.remarks, sep="\n")


if __name__ == "__main__":
    main()

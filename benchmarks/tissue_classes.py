"""How far prototypes found without labels agree with tissue classes, on mosaics of real tiles; and how good the probe is.

    panther slides TILES -o job --encoder lite0 --dtype float32     # TILES: a folder a class, e.g. LC25000's aca, normal, scc
    python benchmarks/tissue_classes.py job/tiles/features_lite0

Six mosaics of 148 tiles: normal tissue with 40 % of one carcinoma or of both. A probe is trained on 120 tiles of each class; the mosaics are drawn
(with repetition) from the others, so a tile may recur between mosaics but was never seen by the probe.
"""

import argparse
from pathlib import Path

import numpy as np
import torch

import _harness as harness
from panther.aggregators import build
from panther.explain.concordance.agreement import agreement, contingency, left_out_accuracy, majority, match_tumour
from panther.explain.concordance.tissue_classifier import LabelledTiles, fit_classifier
from panther.prototypes import KMeansSettings, fit_bags
from panther.types import Bag
from small_bags import tiles_by_class

MOSAICS, PATCHES, TRAINED, TUMOUR = 6, 148, 120, 0.4
COUNTS = (4, 8, 16, 32)


def labelled(tiles: dict[str, np.ndarray]) -> LabelledTiles:
    labels = np.repeat(np.arange(len(tiles)), [len(x) for x in tiles.values()])
    return LabelledTiles(np.concatenate(list(tiles.values())), labels, tuple(tiles))


def mosaics(tiles: dict[str, np.ndarray], rng: np.random.Generator) -> list[tuple[Bag, np.ndarray]]:
    """Bags and the class of every patch."""
    names = list(tiles)
    tumours = [names.index(name) for name in names if name != "normal"]
    found = []
    for number in range(MOSAICS):
        shares = np.zeros(len(names))
        chosen = [tumours[number % len(tumours)]] if number < MOSAICS - 2 else tumours
        shares[chosen] = TUMOUR / len(chosen)
        shares[names.index("normal")] = 1 - TUMOUR
        truth = rng.choice(len(names), PATCHES, p=shares)
        rows = np.stack([tiles[names[k]][rng.integers(len(tiles[names[k]]))] for k in truth])
        found.append((Bag(f"mosaic-{number}", torch.from_numpy(rows)), truth))
    return found


def row(count: int, made: list[tuple[Bag, np.ndarray]], names: list[str]) -> list[str]:
    """Agreement of prototypes with the truth."""
    prototypes = fit_bags([bag for bag, _ in made], KMeansSettings(count)).prototypes
    module = build("panther", prototypes)
    with torch.no_grad():
        shares = [module(bag.features, with_assignment=True) for bag, _ in made]
    rows = [one.assignment.numpy() for one in shares]
    shape = (count, len(names))
    tables = [contingency(r.argmax(1), truth, shape) for r, (_, truth) in zip(rows, made, strict=True)]
    classes = majority(np.sum(tables, 0))
    found = agreement(np.sum(tables, 0), classes)
    tumour = [c for c in range(count) if classes[c] >= 0 and names[classes[c]] != "normal"]
    matches = [
        match_tumour(r, one.aux["weights"].numpy(), (truth != names.index("normal")).astype(float), tumour)
        for r, one, (_, truth) in zip(rows, shares, made, strict=True)
    ]
    scores = [np.mean([getattr(m, f) for m in matches]) for f in ("auroc", "dice", "auroc_all", "dice_all")]
    return [
        str(count),
        f"{found.accuracy:.3f}",
        f"{left_out_accuracy(tables):.3f}",
        f"{found.ari_named:.3f} / {found.ami_named:.3f}",
        ", ".join(f"{one.f1 or 0:.3f}" for one in found.per_class),
        f"{scores[0]:.3f} / {scores[1]:.3f}",
        f"{scores[2]:.3f} / {scores[3]:.3f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tiles", type=Path)
    tiles = tiles_by_class(parser.parse_args().tiles)
    print(harness.machine("scikit-learn"))
    judged = fit_classifier(labelled(tiles)).evaluation
    print(
        f"Probe, all {sum(map(len, tiles.values()))} tiles, cross-validated:",
        {k: v for k, v in judged.items() if k != "confusion"},
    )
    rng = np.random.default_rng(0)
    order = {name: rng.permutation(len(x)) for name, x in tiles.items()}
    known = {name: x[order[name][:TRAINED]] for name, x in tiles.items()}
    made = mosaics({name: x[order[name][TRAINED:]] for name, x in tiles.items()}, rng)
    probe = fit_classifier(labelled(known))
    right = [probe.label(bag).argmax(1) == truth for bag, truth in made]
    print(f"A probe of {TRAINED} tiles a class labels {np.mean(right):.3f} of the mosaics' patches correctly.")
    header = ["C", "patches that agree", "named by other mosaics", "ARI / AMI once named", f"F1 {', '.join(tiles)}"]
    header += ["AUROC / Dice, one prototype", "all tumour prototypes"]
    harness.table("Prototypes without labels, against the truth", header, [row(c, made, list(tiles)) for c in COUNTS])


if __name__ == "__main__":
    main()

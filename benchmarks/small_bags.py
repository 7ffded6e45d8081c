"""Small bags of real tiles: which preset and which scaling serve a linear probe when a slide has only 35 patches?

    panther slides TILES -o job --encoder lite0 --dtype float32     # TILES: a folder a class, e.g. LC25000's aca, normal, scc
    python benchmarks/small_bags.py job/tiles/features_lite0

Slides are drawn from the tiles: training slides from one half of them, test slides from the other. Two questions: the
kind of tumour (30 % of the patches are one or the other tumour), and the share of tumour (25 % or 45 %).
"""

import argparse
from pathlib import Path

import h5py
import numpy as np
import torch

import _harness as harness
from panther.aggregators import PRESETS, build
from panther.evaluation.metrics import binary_auroc
from panther.models.probes import fit_logistic
from panther.models.scaling import build_scaler
from panther.prototypes import KMeansSettings, fit_bags
from panther.types import Bag

PATCHES, SLIDES, SEEDS, C = 35, 60, 8, 8
SCALINGS = {"none": {}, "block": {}, "balanced": {}}
TASKS = {
    "kind of tumour": ((0.3, 0.0), (0.0, 0.3)),
    "share of tumour": ((0.25, 0.0), (0.45, 0.0)),
}  # (first, second) tumour


def tiles_by_class(path: Path) -> dict[str, np.ndarray]:
    """Features of the tiles of each class, whose file bears its name."""
    found = {}
    for bag in sorted(path.glob("*.h5")):
        with h5py.File(bag, "r") as file:
            found[bag.stem] = file["features"][...].astype(np.float32)
    return found


def slides(
    tiles: dict[str, np.ndarray], shares: tuple[tuple[float, float], tuple[float, float]], rng: np.random.Generator
) -> tuple[list[Bag], np.ndarray]:
    """Slides of two labels, mixed from normal tissue and two tumours in shares that vary from slide to slide."""
    first, second = (kind for kind in tiles if kind != "normal")
    bags, labels = [], []
    for number in range(SLIDES):
        label = number % 2
        share = np.clip(np.array(shares[label]) * rng.uniform(0.7, 1.3), 0, 1)
        kinds = rng.choice([first, second, "normal"], PATCHES, p=[*share, 1 - share.sum()])
        rows = np.stack([tiles[kind][rng.integers(len(tiles[kind]))] for kind in kinds])
        bags.append(Bag(str(number), torch.from_numpy(rows)))
        labels.append(label)
    return bags, np.array(labels)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tiles", type=Path)
    tiles = tiles_by_class(parser.parse_args().tiles)
    print(harness.machine("scikit-learn"))
    found: dict[tuple[str, str, str], list[float]] = {}
    for task, shares in TASKS.items():
        for seed in range(SEEDS):
            rng = np.random.default_rng(seed)
            order = {kind: rng.permutation(len(x)) for kind, x in tiles.items()}
            halves = [{k: x[order[k][i::2]] for k, x in tiles.items()} for i in (0, 1)]
            (train, y), (test, truth) = (slides(half, shares, rng) for half in halves)
            prototypes = fit_bags(train, KMeansSettings(C, seed=seed)).prototypes
            for preset in PRESETS:
                module = build("panther", prototypes, {"preset": preset})
                x, z = (torch.stack([module(bag.features).vector.detach() for bag in bags]) for bags in (train, test))
                for scaling, options in SCALINGS.items():
                    scaler = build_scaler(scaling, options)(x, module.columns())
                    probe = fit_logistic(scaler(x).numpy(), y, 2, seed=seed)
                    score = probe.logits(scaler(z).numpy())
                    found.setdefault((task, preset, scaling), []).append(
                        binary_auroc(truth == 1, score[:, 1] - score[:, 0])
                    )
    for task in TASKS:
        rows = [
            [
                preset,
                *(f"{np.mean(found[task, preset, s]):.3f} ± {np.std(found[task, preset, s]):.3f}" for s in SCALINGS),
            ]
            for preset in PRESETS
        ]
        harness.table(
            f"AUC, {task}: {SLIDES} training slides of {PATCHES} real tiles, C = {C}, {SEEDS} seeds",
            ["preset", *SCALINGS],
            rows,
        )


if __name__ == "__main__":
    main()

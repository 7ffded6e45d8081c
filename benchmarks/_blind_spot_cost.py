"""What the blocks cost: time beside PANTHER alone, and numbers added. Used by blind_spots.py."""

import numpy as np
import torch

import _harness as harness
from panther.aggregators import build
from panther.prototypes import KMeansSettings, fit_bags
from panther.types import Bag, Places

PATCHES, DIM, C = 15_000, 1024, 16
ROUNDS = 15
BLOCKS = {"space": ["space"], "tail": ["tail"], "both": ["space", "tail"]}


def cost(quick: bool) -> None:
    """From memory, all sides in one process, interleaved."""
    patches = 2000 if quick else PATCHES
    rng = np.random.default_rng(0)
    centres = torch.from_numpy(rng.normal(0, 1, (C, DIM))).float()
    side = int(np.ceil(np.sqrt(patches)))
    cells = np.stack(np.divmod(np.arange(patches), side), 1)[:, ::-1]
    tissue = (cells // 12 @ (1, 5)) % C  # regions of 12 x 12 patches
    x = centres[tissue] + torch.from_numpy(rng.standard_normal((patches, DIM), np.float32))
    prototypes = fit_bags([Bag("slide", x)], KMeansSettings(C, restarts=1)).prototypes
    where = Places(cells * 256.0, 256.0, (patches,))
    modules = {"PANTHER": build("panther", prototypes)} | {
        name: build("panther", prototypes, {"blocks": blocks}) for name, blocks in BLOCKS.items()
    }

    def side_of(name: str) -> None:
        with torch.no_grad():
            modules[name](x, **({"places": where} if modules[name].needs_places else {}))

    seconds = harness.interleaved(
        {name: lambda n=name: side_of(n) for name in modules}, 3 if quick else ROUNDS, warm_up=2
    )
    alone, usual = seconds["PANTHER"], modules["PANTHER"].out_dim
    allowed = C * (C + 1) // 2 + 4 * C + 2 * DIM + 2
    rows = [
        [name, f"{seconds[name] * 1e3:.1f}", f"{seconds[name] / alone:.2f}x", f"{module.out_dim - usual:,}"]
        for name, module in modules.items()
    ]
    harness.table(
        f"{patches:,} x {DIM:,} patches, C = {C}, {torch.get_num_threads()} threads (aims: 1.3x, {allowed:,} numbers)",
        ["blocks", "ms", "ratio", "numbers added"],
        rows,
    )

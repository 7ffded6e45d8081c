"""What the blocks cost: time beside PANTHER alone, where it goes, and numbers added. Used by blind_spots.py.

One bag in memory; all sides are called in turn, again and again, in one process, and the least CPU time of each is taken (of all threads
together; with OMP_NUM_THREADS=1 it is what the clock says on a quiet machine). What else runs can only add to it, through the caches: the
least of many is nearest to what the call itself needs, and changes little from run to run. Parts are timed in the same rounds, each after a
whole embedding, which fills the caches with other things, as in use.
"""

import gc
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

import _harness as harness
from panther.aggregators import build
from panther.prototypes import KMeansSettings, fit_bags
from panther.types import Bag, Places

PATCHES, DIM, C = 15_000, 1024, 16
ROUNDS = 200
BLOCKS = {"space": ["space"], "tail": ["tail"], "both": ["space", "tail"]}


def cost(quick: bool) -> None:
    """Print what each block adds."""
    patches = 2000 if quick else PATCHES
    x, where = _slide(patches)
    prototypes = fit_bags([Bag("slide", x)], KMeansSettings(C, restarts=1)).prototypes
    modules = {"PANTHER": build("panther", prototypes)} | {
        name: build("panther", prototypes, {"blocks": blocks}) for name, blocks in BLOCKS.items()
    }
    alone, both = modules["PANTHER"], modules["both"]
    space, tail = both.blocks
    with torch.no_grad():
        fit = both.fit(x)
        whole = {name: lambda m=m: m(x, **({"places": where} if m.needs_places else {})) for name, m in modules.items()}
        parts = {
            "fit of PANTHER alone": lambda: alone.fit(x),
            "fit that keeps posteriors": lambda: modules["space"].fit(x),
            "fit that keeps posteriors and scores": lambda: both.fit(x),
            "numbers of `space`": lambda: space(fit, x, where),
            "numbers of `tail`": lambda: tail(fit, x, None),
        }
        seconds = _least(whole, parts, 3 if quick else ROUNDS)
    usual, allowed = seconds["PANTHER"], C * (C + 1) // 2 + 4 * C + 2 * DIM + 2
    threads = torch.get_num_threads()
    harness.table(
        f"{patches:,} x {DIM:,} patches, C = {C}, {threads} threads (aims: 1.3x, {allowed:,} numbers)",
        ["blocks", "CPU ms", "ratio", "numbers added"],
        [
            [name, *_told(seconds[name], usual), f"{module.out_dim - alone.out_dim:,}"]
            for name, module in modules.items()
        ],
    )
    harness.table(
        "Where it goes",
        ["part", "CPU ms", "of PANTHER alone"],
        [[name, *_told(seconds[name], usual)] for name in parts],
    )


def _slide(patches: int) -> tuple[torch.Tensor, Places]:
    """Features of a square slide whose tissues lie in regions of 12 x 12 patches, and where they lie."""
    rng = np.random.default_rng(0)
    centres = torch.from_numpy(rng.normal(0, 1, (C, DIM))).float()
    side = int(np.ceil(np.sqrt(patches)))
    cells = np.stack(np.divmod(np.arange(patches), side), 1)[:, ::-1]
    tissue = (cells // 12 @ (1, 5)) % C
    x = centres[tissue] + torch.from_numpy(rng.standard_normal((patches, DIM), np.float32))
    return x, Places(cells * 256.0, 256.0, (patches,))


def _least(
    whole: Mapping[str, Callable[[], Any]], parts: Mapping[str, Callable[[], Any]], rounds: int
) -> dict[str, float]:
    """Least CPU seconds of each side."""
    seconds = dict.fromkeys([*whole, *parts], float("inf"))
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            for name, side in whole.items():
                seconds[name] = min(seconds[name], _timed(side))
            for name, side in parts.items():
                whole["both"]()
                seconds[name] = min(seconds[name], _timed(side))
    finally:
        gc.enable()
    return seconds


def _timed(side: Callable[[], Any]) -> float:
    start = time.process_time()
    side()
    return time.process_time() - start


def _told(seconds: float, usual: float) -> tuple[str, str]:
    return f"{seconds * 1e3:.2f}", f"{seconds / usual:.3f}x"

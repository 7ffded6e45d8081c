"""All unsupervised methods on one slide: time and memory; optimal transport beside POT.

`python benchmarks/aggregators.py` needs no arguments (and POT, installed with the extra `dev`).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import ot as pot
import torch
from torch import Tensor

import _harness as harness
from _passes import COMPONENTS, slide
from panther.aggregators import build
from panther.types import Prototypes

PATCHES, ROUNDS = 15_000, 7
METHODS = {"deepsets": {}, "protocounts": {}, "h2t": {}, "ot": {"epsilon": 0.1}, "panther": {}}
EPSILONS = (1.0, 0.1, 0.01)


def embed(method: str, x: Tensor, prototypes: Tensor, **options: Any) -> Tensor:
    with torch.no_grad():
        return build(method, Prototypes(prototypes), options)(x).vector


def pot_embed(x: Tensor, prototypes: Tensor, epsilon: float, tolerance: float) -> np.ndarray:
    """Straightforward use of POT: float64, its fastest solver that stays finite, up to the same marginal violation."""
    z, h = x.double().numpy(), prototypes.double().numpy()
    cost = pot.dist(z, h)
    a, b = np.full(len(z), 1 / len(z)), np.full(len(h), 1 / len(h))
    plan = pot.sinkhorn(a, b, cost / cost.mean(), epsilon, numItermax=1000, stopThr=tolerance, warn=False)
    return len(h) * plan.T @ z


def exact(x: Tensor, prototypes: Tensor, epsilon: float) -> np.ndarray:
    """The converged plan, by POT in the log domain."""
    z, h = x.double().numpy(), prototypes.double().numpy()
    cost = pot.dist(z, h)
    a, b = np.full(len(z), 1 / len(z)), np.full(len(h), 1 / len(h))
    plan = pot.sinkhorn(
        a, b, cost / cost.mean(), epsilon, method="sinkhorn_log", numItermax=20_000, stopThr=1e-10, warn=False
    )
    return len(h) * plan.T @ z


@contextmanager
def prepared(method: str) -> Iterator[Callable[[], Any]]:
    torch.set_num_threads(1)
    x, prototypes = slide("soft", PATCHES)
    embed(method, x[:600], prototypes, **METHODS[method])
    yield partial(embed, method, x, prototypes, **METHODS[method])


def error(found: Any, truth: np.ndarray) -> float:
    found = np.asarray(found, dtype=np.float64).ravel()
    return float(np.linalg.norm(found - truth.ravel()) / np.linalg.norm(truth))


def main() -> None:
    torch.set_num_threads(1)
    print(harness.machine("POT", "scipy"))
    print(f"One slide of {PATCHES:,} x 1024 float32, C = {COMPONENTS}, one thread, medians of {ROUNDS}.")
    x, prototypes = slide("soft", PATCHES)
    sides = {m: partial(embed, m, x, prototypes, **METHODS[m]) for m in METHODS}
    seconds = harness.interleaved(sides, ROUNDS)
    rows = [
        [m, f"{seconds[m] * 1e3:.0f}", f"{harness.peak_extra(prepared, m):.1f}", len(embed(m, x, prototypes))]
        for m in METHODS
    ]
    harness.table("Five methods", ["method", "ms a slide", "peak extra MB", "numbers"], rows)

    rows = []
    for kind in ("soft", "one-hot"):
        x, prototypes = slide(kind, PATCHES)
        for epsilon in EPSILONS:
            truth = exact(x, prototypes, epsilon)
            options = {"epsilon": epsilon, "iterations": 1000, "tolerance": 1e-6}
            sides = {
                "pot": partial(pot_embed, x, prototypes, epsilon, 1e-6),
                "ours": partial(embed, "ot", x, prototypes, **options),
            }
            seconds = harness.interleaved(sides, 3)
            found = build("ot", Prototypes(prototypes), options)(x)
            rows.append(
                [
                    kind,
                    epsilon,
                    f"{seconds['pot'] * 1e3:.0f}",
                    f"{seconds['ours'] * 1e3:.0f}",
                    f"{seconds['pot'] / seconds['ours']:.1f}x",
                    f"{error(sides['pot'](), truth):.0e}",
                    f"{error(found.vector, truth):.0e}",
                    f"{found.aux['iterations']}, {float(found.aux['marginal_violation']):.0e}",
                ]
            )
    header = ["tissues", "epsilon", "POT ms", "ours ms", "ratio", "POT error", "our error", "our iterations, violation"]
    harness.table("Optimal transport beside POT", header, rows)


if __name__ == "__main__":
    main()

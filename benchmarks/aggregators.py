"""All unsupervised methods on one slide: time and memory; optimal transport beside POT.

`python benchmarks/aggregators.py` needs no arguments (and POT, installed with the extra `dev`); about 2 minutes, `--quick` to see that it runs.
"""

import argparse
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import ot as pot
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

import _harness as harness
from _passes import COMPONENTS, slide
from panther.aggregators import build
from panther.types import Prototypes

PATCHES, ROUNDS = 15_000, 7
METHODS = {"deepsets": {}, "protocounts": {}, "h2t": {}, "ot": {"epsilon": 0.1}, "panther": {}}
EPSILONS, TOLERANCE = (1.0, 0.1, 0.01), 1e-6


def embed(method: str, x: Tensor, prototypes: Tensor, **options: Any) -> Tensor:
    with torch.no_grad():
        return build(method, Prototypes(prototypes), options)(x).vector


def pot_embed(z: Any, h: Any, epsilon: float, tolerance: float) -> Any:
    """POT as its manual shows it, on arrays or tensors of the type given, up to the same marginal violation; its default solver."""
    cost = pot.dist(z, h)
    plan = pot.sinkhorn([], [], cost / cost.mean(), epsilon, numItermax=1000, stopThr=tolerance, warn=False)
    return len(h) * plan.T @ z


def pot_ways(x: Tensor, prototypes: Tensor, epsilon: float) -> dict[str, Callable[[], Any]]:
    """Ways to call POT: two backends in two precisions, the conversion not on its clock."""
    ways: dict[str, Callable[[], Any]] = {}
    for precision in ("float32", "float64"):
        z, h = (t.to(getattr(torch, precision)) for t in (x, prototypes))
        ways[f"torch {precision}"] = partial(pot_embed, z, h, epsilon, TOLERANCE)
        ways[f"numpy {precision}"] = partial(pot_embed, z.numpy(), h.numpy(), epsilon, TOLERANCE)
    return ways


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
def prepared(method: str, patches: int) -> Iterator[Callable[[], Any]]:
    torch.set_num_threads(1)
    x, prototypes = slide("soft", patches)
    embed(method, x[:600], prototypes, **METHODS[method])
    yield partial(embed, method, x, prototypes, **METHODS[method])


def error(found: Any, truth: np.ndarray) -> float:
    found = np.asarray(found, dtype=np.float64).ravel()
    return float(np.linalg.norm(found - truth.ravel()) / np.linalg.norm(truth))


def beside_pot(patches: int, rounds: int) -> None:
    """Ours to POT's fastest way that is as exact as ours (within a factor of ten)."""
    rows = []
    for kind in ("soft", "one-hot"):
        x, prototypes = slide(kind, patches)
        for epsilon in EPSILONS:
            truth = exact(x, prototypes, epsilon)
            options = {"epsilon": epsilon, "iterations": 1000, "tolerance": TOLERANCE}
            ways = pot_ways(x, prototypes, epsilon)
            seconds = harness.interleaved({"ours": partial(embed, "ot", x, prototypes, **options), **ways}, rounds)
            found = build("ot", Prototypes(prototypes), options)(x)
            ours = error(found.vector.detach(), truth)
            errors = {way: error(call(), truth) for way, call in ways.items()}
            as_exact = [way for way in ways if errors[way] <= 10 * ours]
            best = min(as_exact or ways, key=lambda way: seconds[way])
            rows.append(
                [
                    kind,
                    epsilon,
                    best,
                    f"{seconds[best] * 1e3:.0f}",
                    f"{seconds['ours'] * 1e3:.0f}",
                    f"{seconds[best] / seconds['ours']:.1f}x",
                    f"{errors[best]:.0e}",
                    f"{ours:.0e}",
                    f"{found.aux['iterations']}, {float(found.aux['marginal_violation']):.0e}",
                ]
            )
    header = ["tissues", "epsilon", "POT's fastest way", "POT ms", "ours ms", "ratio", "POT error", "our error"]
    harness.table("Optimal transport beside POT", [*header, "our iterations, violation"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it runs")
    patches, rounds = (300, 1) if parser.parse_args().quick else (PATCHES, ROUNDS)
    torch.set_num_threads(1)
    print(harness.machine("POT", "scipy"))
    print(f"One slide of {patches:,} x 1024 float32, C = {COMPONENTS}, one thread on every side, medians of {rounds}.")
    x, prototypes = slide("soft", patches)
    sides = {m: partial(embed, m, x, prototypes, **METHODS[m]) for m in METHODS}
    seconds = harness.interleaved(sides, rounds)
    rows = [
        [m, f"{seconds[m] * 1e3:.0f}", f"{harness.peak_extra(prepared, m, patches):.1f}", len(embed(m, x, prototypes))]
        for m in METHODS
    ]
    harness.table("Five methods", ["method", "ms per slide", "peak extra MB", "numbers"], rows)
    with threadpool_limits(1), warnings.catch_warnings():  # numpy's own threads do not listen to torch
        warnings.simplefilter("ignore")  # POT says where it over- or underflows; the errors tell
        beside_pot(patches, min(rounds, 3))


if __name__ == "__main__":
    main()

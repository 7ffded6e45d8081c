"""Do these prototypes deserve trust? Numbers first, then a warning in words where something looks wrong."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

DOMINATED = 0.95  # share of one prototype from which a slide counts as dominated by it
DUPLICATE = 0.01  # distance, in units of the within-cluster radius, below which two prototypes are one


def diagnose(
    centroids: Tensor,
    within_variance: Tensor,
    occupancy: Tensor,
    slide_mass: Mapping[str, Tensor],
    inertias: list[float],
) -> dict[str, Any]:
    """Diagnostics of fitted prototypes.

    Parameters
    ----------
    centroids, within_variance, occupancy : Tensor
        (C, d), (d,), (C,).
    slide_mass : mapping
        Patches per prototype (C,) of each training slide.
    inertias : list of float
        Of each restart, on the sample.
    """
    distance = torch.cdist(centroids.double(), centroids.double(), compute_mode="donot_use_mm_for_euclid_dist")
    distance.fill_diagonal_(torch.inf)
    to_nearest, neighbour = (
        distance.min(1) if len(centroids) > 1 else (torch.zeros(1), torch.zeros(1, dtype=torch.long))
    )
    radius = float(within_variance.double().sum().sqrt())
    pairs = (distance < max(DUPLICATE * radius, 1e-12)).nonzero().tolist()
    shares = {slide: mass / mass.sum() for slide, mass in slide_mass.items() if float(mass.sum()) > 0}
    several = len(centroids) > 1  # the only one holds every slide, which says nothing
    dominated = {
        slide: int(share.argmax()) for slide, share in shares.items() if several and float(share.max()) >= DOMINATED
    }
    result = {
        "inertia_per_restart": [round(value, 3) for value in inertias],
        "restart_spread": _rounded((max(inertias) - min(inertias)) / max(min(inertias), 1e-30)),
        "occupancy_share": [_rounded(float(v)) for v in occupancy / occupancy.sum()],
        "distance_to_nearest": [_rounded(float(v)) for v in to_nearest],
        "nearest": [int(v) for v in neighbour],
        "within_radius": _rounded(radius),
        "near_duplicates": [[a, b] for a, b in pairs if a < b],
        "dominated_slides": dict(sorted(dominated.items())),
        "slides": len(shares),
        "effective_number": _rounded(float(torch.special.entr(occupancy / occupancy.sum()).sum().exp())),
    }
    return {**result, "warnings": warnings(result)}


def warnings(d: Mapping[str, Any]) -> list[str]:
    """What a colleague would say on seeing these numbers."""
    shares = d["occupancy_share"]
    largest = max(range(len(shares)), key=shares.__getitem__)
    empty = [f"C{c}" for c, share in enumerate(shares) if share == 0]
    said = []
    if len(shares) > 1 and (shares[largest] > 0.9 or d["effective_number"] < 1 + (len(shares) - 1) / 8):
        said.append(
            f"The prototypes look collapsed: C{largest} holds {shares[largest]:.0%} of the patches "
            f"(effective number {d['effective_number']:.1f} of {len(shares)}). "
            "Check for background patches or constant features; try `normalise=True` or another `n_prototypes=`."
        )
    if d["near_duplicates"]:
        a, b = d["near_duplicates"][0]
        said.append(
            f"{len(d['near_duplicates'])} pairs of prototypes are nearly identical, e.g. C{a} and C{b}: ask for fewer with `n_prototypes=`."
        )
    if empty:
        said.append(f"{', '.join(empty)} hold no patch: ask for fewer with `n_prototypes=`.")
    if d["slides"] >= 4 and len(d["dominated_slides"]) > d["slides"] / 2:
        said.append(
            f"{len(d['dominated_slides'])} of {d['slides']} slides lie almost wholly in one prototype: prototypes may tell slides or "
            "sites apart rather than morphology."
        )
    if d["restart_spread"] > 0.05:
        said.append(f"Restarts disagree ({d['restart_spread']:.0%} in inertia): raise `restarts=` or `sample=`.")
    return said


def _rounded(value: float) -> float:
    """Six digits: enough to read, and the last bits of a sum are not worth storing."""
    return float(f"{value:.6g}")

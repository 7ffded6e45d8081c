"""Which prototype a patch belongs to, by the method that made the slide's embedding."""

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from panther.aggregators.embed import run_on
from panther.aggregators.sharing import placed
from panther.errors import InputError, not_finite
from panther.statistics import first_bad_row
from panther.statistics.upload import near
from panther.types import Aggregator, Bag


class Assigned(NamedTuple):
    """Patches' shares of the prototypes, and the slide's."""

    assignment: Tensor  # (N, C), rows add up to 1
    weights: Tensor  # (C,), pi of the embedding where the method has one, else the mean of the rows


def assign(bag: Bag, module: Aggregator, device: str = "cpu") -> Assigned:
    """Assignment (N, C) of a prepared bag (`Prototypes.prepared`); one without patches or with NaN is refused.

    PANTHER's is the posterior :math:`q(c|z_n)` that made the parameters; a row of OT's plan is divided by its mass 1/N; the nearest
    prototype's methods (H2T, ProtoCounts) give ones and zeros. The result is in this process's memory, whatever ``device`` computes it.
    """
    check_patches(bag)
    there = replace(bag, features=near(bag.features, device))
    embedding = run_on(there, placed(module, torch.device(device)), with_assignment=True)
    rows = embedding.assignment
    # only methods with prototypes have a per-prototype view or masses
    if rows is None or "mass" not in embedding.aux:
        raise InputError(
            f"The method {type(module).__name__} does not assign patches to prototypes; use panther, ot, h2t or protocounts."
        )
    rows = (rows / rows.sum(-1, keepdim=True)).cpu()
    # a hard assignment looks sound even for NaN, the embedding does not
    if not bool(torch.isfinite(rows).all()) or not bool(torch.isfinite(embedding.vector).all()) or _bad(bag, rows):
        bad = first_bad_row(bag.features)
        if bad is None:
            raise InputError(f"{bag.source}: features are too large to square in float32; rescale them.")
        raise not_finite(bag.source, bad)
    weights = embedding.aux.get("weights")
    return Assigned(rows, rows.double().mean(0) if weights is None else weights.detach().cpu().double())


def check_patches(bag: Bag) -> None:
    """Refuse a bag without patches."""
    if len(bag) == 0:
        raise InputError(f"{bag.source}: zero patches; there is nothing to map.")


def _bad(bag: Bag, rows: Tensor) -> bool:
    """Counts of a hard assignment forget NaN: there the features themselves must be looked at."""
    hard = bool(((rows == 0) | (rows == 1)).all())
    return hard and first_bad_row(bag.features) is not None

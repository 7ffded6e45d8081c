"""A budget of patches: only an even sample of a slide's patches is encoded, as many as a number, a share or a standard error requires."""

import math
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch

from panther.aggregators.embed import embed
from panther.encoders.pipeline import Encoded, Pipeline
from panther.encoders.sources import Source
from panther.errors import InputError
from panther.statistics.even_sample import draw_even, standard_error
from panther.types import Bag, Prototypes

FIRST = 256  # patches of the first sample where a standard error is required
LEAST = 3  # patches, for a standard error
EXPECTED = "expected a number of patches (1500), a share of them (10%) or a standard error (se=0.01)"


@dataclass(frozen=True)
class Budget:
    """Patches to be encoded per slide: a number, a share of them, or as many as the standard error of the proportions requires."""

    text: str
    seed: int = 0
    prototypes: Prototypes | None = None  # of which the proportions are, for a standard error

    def __post_init__(self) -> None:
        """Refuse what is no budget."""
        kind, value = self._parsed()
        valid = {"%": 0 < value <= 100, "se": 0 < value < 0.5, "": value >= LEAST and value.is_integer()}[kind]
        if not valid:  # NaN, too
            raise InputError(f"budget: found {self.text!r}, {EXPECTED}")
        if (kind == "se") != (self.prototypes is not None):
            what = "requires `prototypes=`" if kind == "se" else "does not use `prototypes=`"
            raise InputError(f"budget: {self.text} {what}: only se= depends on proportions of prototypes")

    @property
    def error(self) -> float | None:
        """Largest standard error of a proportion, where that is the budget."""
        kind, value = self._parsed()
        return value if kind == "se" else None

    @property
    def parts(self) -> list[Any]:
        """Everything that the sample depends on, for the key of the features."""
        return [self.text, self.seed, self.prototypes and self.prototypes.content_hash()]

    def size(self, total: int) -> int:
        """Patches to be encoded of ``total``; with a standard error at most."""
        kind, value = self._parsed()
        wanted = {"%": math.ceil(total * value / 100), "se": total, "": value}[kind]
        return min(total, max(LEAST, int(wanted)))

    def encode(self, pipeline: Pipeline, source: Source, along: np.ndarray, bag: Bag) -> tuple[Encoded, np.ndarray]:
        """Encode a sample of the patches ``along`` the curve (N, 2); also returns their positions on it.

        With a standard error the sample grows until the largest one of ``bag``, which gets the features, is below it. Every
        larger sample contains the one before, so no patch is encoded in vain.
        """
        total = len(along)
        size = self.size(total) if self.error is None else min(FIRST, total)
        drawn = draw_even(total, size, self.seed) if total else np.empty(0, np.int64)
        encoded = pipeline.run(source, along[drawn])
        while self.error is not None and len(drawn) < total and encoded.kept.any():
            features = torch.from_numpy(encoded.rows[encoded.kept])
            assignment = embed(replace(bag, features=features), self.prototypes, with_assignment=True).assignment
            assert assignment is not None
            error = float(standard_error(assignment.numpy(), total).max())
            if error <= self.error:
                break
            needed = 0.0  # of fewer than three decoded patches there is no error: the sample is doubled
            if not math.isnan(error):
                # the part of the variance that falls as 1/n, beside the finite population
                needed = (error / self.error) ** 2 / (1 / len(drawn) - 1 / total)
                needed /= 1 + needed / total
            size = len(drawn) * max(2, math.ceil(needed / len(drawn)))
            larger = draw_even(total, size, self.seed, drawn) if size < total else np.arange(total)
            added = np.setdiff1d(larger, drawn)
            encoded = _merged(encoded, pipeline.run(source, along[added]), np.argsort(np.append(drawn, added)))
            drawn = larger
        return encoded, drawn

    def _parsed(self) -> tuple[str, float]:
        text = self.text.strip()
        kind = "%" if text.endswith("%") else "se" if text.startswith("se=") else ""
        try:
            return kind, float(text.removesuffix("%").removeprefix("se="))
        except ValueError:
            return kind, math.nan

    @classmethod
    def of(cls, text: str | None, seed: int, prototypes: Prototypes | None) -> Self | None:
        """The budget, None without one."""
        if text is None and prototypes is not None:
            raise InputError("prototypes: found without `budget=se=...`, the only setting that uses them")
        return None if text is None else cls(text, seed, prototypes)


def _merged(first: Encoded, second: Encoded, order: np.ndarray) -> Encoded:
    """Two parts as one, in another order: rows of the first, then of the second, are taken in ``order``."""
    count, place = len(first.rows), np.argsort(order)
    failed = {**first.failed, **{count + row: why for row, why in second.failed.items()}}
    rows = np.concatenate([first.rows, second.rows])[order]
    failed = dict(sorted((int(place[row]), why) for row, why in failed.items()))
    return Encoded(rows, failed, first.throughput + second.throughput)

"""Targets, one value per slide or patient: a class, a time with an event, a number, or several labels.

Everything that differs between them is a method here: counts, descriptions, columns of tables, groups that folds should balance.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np

Kind = Literal["classification", "survival", "regression", "labels"]
QUARTERS = 4  # of times and numbers, which folds should balance
DAYS_IN = {"days": 1.0, "weeks": 7.0, "months": 365.25 / 12, "years": 365.25}
COMMON_PATTERN = 10  # samples with the same labels that are a separate group


class _Rows:
    """Arrays with one entry for each slide or patient."""

    def _arrays(self) -> dict[str, np.ndarray]:
        return {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}

    def __len__(self) -> int:
        return len(next(iter(self._arrays().values())))

    def take(self, rows: np.ndarray) -> Self:
        """Target of some rows."""
        return replace(self, **{name: values[rows] for name, values in self._arrays().items()})  # type: ignore[type-var]

    def followed_by(self, other: Self) -> Self:
        """Both, one after the other."""
        both = {name: np.concatenate([a, getattr(other, name)]) for name, a in self._arrays().items()}
        return replace(self, **both)  # type: ignore[type-var]

    def groups(self) -> dict[str, np.ndarray]:
        """Members (n,) of groups that folds should balance."""
        raise NotImplementedError

    def indicators(self) -> dict[str, np.ndarray]:
        """Indicators (n,) of all samples, and of each of the groups that folds should balance."""
        groups = {name: members for name, members in self.groups().items() if members.any()}
        return {name: members.astype(float) for name, members in {"samples": np.ones(len(self)), **groups}.items()}


@dataclass(frozen=True, eq=False)
class Classes(_Rows):
    """One class for each."""

    names: tuple[str, ...]  # of the classes, in their order
    labels: np.ndarray  # (n,) int64, position in `names`
    kind: ClassVar[Kind] = "classification"

    def counts(self) -> dict[str, int]:
        """Samples of each class."""
        tally = np.bincount(self.labels, minlength=len(self.names))
        return {name: int(n) for name, n in zip(self.names, tally, strict=True)}

    def only_class(self) -> str | None:
        """The only class, or None where there are several."""
        present = np.unique(self.labels)
        return self.names[present[0]] if len(present) == 1 else None

    def lack(self, part: str) -> str | None:
        """Classes missing from a part of a split, as the end of a sentence; None where it has all."""
        absent = [name for name, n in self.counts().items() if n == 0]
        has_none = "no training sample is" if part == "training" else f"{part} has no sample"
        return f"{has_none} of class {', '.join(absent)}" if absent else None

    def describe(self) -> str:
        """Classes and their sizes."""
        sizes = "; ".join(f"{name} {n}" for name, n in self.counts().items())
        return f"{len(self.names)} classes: {sizes}."

    def as_y(self) -> np.ndarray:
        """Names of the classes (n,), as scikit-learn takes them."""
        return np.array(self.names)[self.labels]

    def columns(self) -> dict[str, Any]:
        """As columns of a table: `label`."""
        return {"label": [self.names[k] for k in self.labels]}

    def strata(self, bins: int = QUARTERS) -> np.ndarray:
        """The classes."""
        return self.labels.copy()

    def groups(self) -> dict[str, np.ndarray]:
        """Each class."""
        return {f"class {name}": self.labels == k for k, name in enumerate(self.names)}


@dataclass(frozen=True, eq=False)
class Survival(_Rows):
    """Time under observation, and whether it ended with the event (True) or censoring (False)."""

    time: np.ndarray  # (n,) float64, > 0
    event: np.ndarray  # (n,) bool
    unit: str | None = None  # of the times, one of DAYS_IN; None where it is not known
    kind: ClassVar[Kind] = "survival"

    def in_unit(self, unit: str | None) -> "Survival":
        """The same times in another unit; as they are where one of the two is not known."""
        if unit is None or self.unit is None or unit == self.unit:
            return self
        return Survival(self.time * (DAYS_IN[self.unit] / DAYS_IN[unit]), self.event, unit)

    def followed_by(self, other: "Survival") -> "Survival":
        """Both, one after the other, in the unit of the first."""
        return super().followed_by(other.in_unit(self.unit))

    def counts(self) -> dict[str, int]:
        """Numbers of events and of censored samples."""
        return {"event": int(self.event.sum()), "censored": int((~self.event).sum())}

    def lack(self, part: str) -> str | None:
        """A message where there are no events."""
        who = f"the {len(self)} samples of {'train' if part == 'training' else part}"
        return None if self.event.any() else f"none of {who} has the event"

    def describe(self) -> str:
        """Events and follow-up."""
        unit = f" {self.unit}" if self.unit else ""
        return f"{int(self.event.sum())} events among {len(self)}; median time {np.median(self.time):g}{unit}."

    def as_y(self) -> np.ndarray:
        """Time and event (n, 2), as `EmbeddingCox` takes them."""
        return np.column_stack([self.time, self.event])

    def columns(self) -> dict[str, Any]:
        """As columns of a table: `time` and `event`."""
        return {"time": self.time, "event": self.event}

    def strata(self, bins: int = QUARTERS) -> np.ndarray:
        """Events and censored, each cut at quantiles of their time; (n,) int64."""
        groups = np.zeros(len(self), dtype=np.int64)
        for event in (True, False):  # events first: dealt one after the other, every fold gets its share of them
            members = self.event == event
            if members.any():
                groups[members] = _quantile_bin(self.time[members], bins) + (0 if event else bins)
        return groups

    def groups(self) -> dict[str, np.ndarray]:
        """Events, and each stratum."""
        strata = self.strata().reshape(1, -1) == np.arange(2 * QUARTERS)[:, None]
        quarters = [f"{what}, time quarter {q}" for what in ("event", "censored") for q in range(1, QUARTERS + 1)]
        return {"events": self.event, **dict(zip(quarters, strata, strict=True))}


@dataclass(frozen=True, eq=False)
class Values(_Rows):
    """One number for each."""

    values: np.ndarray  # (n,) float64
    kind: ClassVar[Kind] = "regression"

    def counts(self) -> dict[str, int]:
        """Number of values."""
        return {"values": len(self)}

    def lack(self, part: str) -> str | None:
        """A message where all values are the same."""
        return None if len(np.unique(self.values)) > 1 else f"all {len(self)} {part} samples have the same value"

    def describe(self) -> str:
        """Median and range."""
        low, middle, high = np.quantile(self.values, [0, 0.5, 1]) if len(self) else (np.nan,) * 3
        return f"{len(self)} values from {low:g} to {high:g}, median {middle:g}."

    def as_y(self) -> np.ndarray:
        """The values (n,), as scikit-learn takes them."""
        return self.values

    def columns(self) -> dict[str, Any]:
        """As columns of a table: `value`."""
        return {"value": self.values}

    def strata(self, bins: int = QUARTERS) -> np.ndarray:
        """Values cut at their quantiles; (n,) int64."""
        return _quantile_bin(self.values, bins)

    def groups(self) -> dict[str, np.ndarray]:
        """Each quarter of the values."""
        return {f"value quarter {q + 1}": self.strata() == q for q in range(QUARTERS)}


@dataclass(frozen=True, eq=False)
class Labels(_Rows):
    """Several labels for each, yes or no; NaN where unknown."""

    names: tuple[str, ...]  # of the L labels
    values: np.ndarray  # (n, L) float64: 1, 0 or NaN
    kind: ClassVar[Kind] = "labels"

    @property
    def positive(self) -> np.ndarray:
        """Positive samples of each label (L,)."""
        return (self.values == 1).sum(0)

    @property
    def known(self) -> np.ndarray:
        """Samples in which each label is known (L,)."""
        return (~np.isnan(self.values)).sum(0)

    def one_sided(self) -> list[str]:
        """Labels that are positive in all known samples, or in none."""
        return [n for n, has, known in zip(self.names, self.positive, self.known, strict=True) if has in (0, known)]

    def counts(self) -> dict[str, int]:
        """Positive samples of each label."""
        return {name: int(n) for name, n in zip(self.names, self.positive, strict=True)}

    def lack(self, part: str) -> str | None:
        """Labels without both, positive and negative samples."""
        labels = ", ".join(self.one_sided())
        return f"{part} does not have both, samples with and without, of the label {labels}" if labels else None

    def describe(self) -> str:
        """Positive and known samples of each label."""
        each = zip(self.names, self.positive, self.known, strict=True)
        return f"{len(self.names)} labels: " + "; ".join(f"{name} {p} of {n} known" for name, p, n in each) + "."

    def as_y(self) -> np.ndarray:
        """Ones, zeros and NaN (n, L)."""
        return self.values

    def columns(self) -> dict[str, Any]:
        """As columns of a table: `label_<name>` for each, empty where it is not known."""
        return {f"label_{name}": self.values[:, k] for k, name in enumerate(self.names)}

    def strata(self, bins: int = QUARTERS) -> np.ndarray:
        """Samples with the same labels where there are many of them, the others by their rarest label; (n,) int64."""
        has = self.values == 1
        rarity = np.argsort(self.positive, kind="stable")
        rarest = np.where(has.any(1), rarity[has[:, rarity].argmax(1)], len(self.names))  # L: none
        _, pattern, size = np.unique(has, axis=0, return_inverse=True, return_counts=True)
        pattern = pattern.reshape(-1)
        common = size[pattern] >= COMMON_PATTERN
        groups = np.where(common, len(self.names) + 1 + pattern, rarest)
        return np.unique(groups, return_inverse=True)[1].reshape(-1).astype(np.int64)

    def groups(self) -> dict[str, np.ndarray]:
        """Samples with and without each label."""
        sides = ((1, "with"), (0, "without"))
        return {f"{word} {n}": self.values[:, k] == v for k, n in enumerate(self.names) for v, word in sides}


Target = Classes | Survival | Values | Labels


def no_outcome(count: int) -> Classes:
    """Target of ``count`` samples without an outcome."""
    return Classes(("samples",), np.zeros(count, dtype=np.int64))


def _quantile_bin(values: np.ndarray, bins: int) -> np.ndarray:
    """Bin 0 ... bins - 1 between quantiles, (n,) int64."""
    edges = np.quantile(values, np.linspace(0, 1, bins + 1)[1:-1])
    return np.searchsorted(edges, values, side="right").astype(np.int64)

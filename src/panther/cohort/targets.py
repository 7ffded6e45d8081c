"""What is to be predicted, one value per slide or patient: a class, or a time with an event."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Classes:
    """One class for each."""

    names: tuple[str, ...]  # of the classes, in their order
    labels: np.ndarray  # (n,) int64, position in `names`

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: np.ndarray) -> "Classes":
        """Target of some rows; the classes stay the same."""
        return Classes(self.names, self.labels[rows])

    def counts(self) -> dict[str, int]:
        """How many are of each class."""
        tally = np.bincount(self.labels, minlength=len(self.names))
        return {name: int(n) for name, n in zip(self.names, tally, strict=True)}

    def describe(self) -> str:
        """Classes and their sizes."""
        sizes = "; ".join(f"{name} {n}" for name, n in self.counts().items())
        return f"{len(self.names)} classes: {sizes}."

    def as_y(self) -> np.ndarray:
        """Names of the classes (n,), as scikit-learn takes them."""
        return np.array(self.names)[self.labels]


@dataclass(frozen=True, eq=False)
class Survival:
    """Time under observation, and whether it ended with the event (True) or the patient was lost from sight (False, censored)."""

    time: np.ndarray  # (n,) float64, > 0
    event: np.ndarray  # (n,) bool

    def __len__(self) -> int:
        return len(self.time)

    def take(self, rows: np.ndarray) -> "Survival":
        """Target of some rows."""
        return Survival(self.time[rows], self.event[rows])

    def counts(self) -> dict[str, int]:
        """How many have the event, and how many are censored."""
        return {"event": int(self.event.sum()), "censored": int((~self.event).sum())}

    def describe(self) -> str:
        """Events and follow-up."""
        return f"{int(self.event.sum())} events among {len(self)}; median time {np.median(self.time):g}."

    def as_y(self) -> np.ndarray:
        """Time and event (n, 2), as `EmbeddingCox` takes them."""
        return np.column_stack([self.time, self.event])


Target = Classes | Survival

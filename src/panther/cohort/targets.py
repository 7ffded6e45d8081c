"""What is to be predicted, one value a sample: a class, or a time with an event."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Classes:
    """One class a sample."""

    names: tuple[str, ...]  # of the classes, in their order
    labels: np.ndarray  # (n,) int64, position in `names`

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: np.ndarray) -> "Classes":
        """Target of some samples; the classes stay the same."""
        return Classes(self.names, self.labels[rows])


@dataclass(frozen=True, eq=False)
class Survival:
    """Time under observation, and whether it ended with the event (True) or the patient was lost from sight (False, censored)."""

    time: np.ndarray  # (n,) float64, > 0
    event: np.ndarray  # (n,) bool

    def __len__(self) -> int:
        return len(self.time)

    def take(self, rows: np.ndarray) -> "Survival":
        """Target of some samples."""
        return Survival(self.time[rows], self.event[rows])


Target = Classes | Survival

"""Settings of the prototypes."""

from dataclasses import dataclass
from typing import Literal

from panther.errors import InputError


@dataclass(frozen=True)
class KMeansSettings:
    """How prototypes are fitted; all of it is saved with them."""

    n_prototypes: int = 16
    seed: int = 0
    sample: int = 20_000  # patches for k-means++ and its restarts
    share: Literal["proportional", "equal"] = "proportional"  # of the sample, over slides
    restarts: int = 5
    passes: int = 3  # Lloyd passes over all patches of the cohort afterwards
    normalise: bool = False  # L2
    pca: int | None = None  # dimensions
    memory_gb: float = 4.0  # cap on what the sample may take

    def __post_init__(self) -> None:
        if self.n_prototypes < 1 or self.restarts < 1 or self.passes < 0:
            raise InputError("Prototypes need C >= 1, restarts >= 1 and passes >= 0.")
        if self.seed < 0:
            raise InputError(f"The seed must not be negative, but is {self.seed}.")
        if self.share not in ("proportional", "equal"):
            raise InputError(f"The share over slides is 'proportional' or 'equal', not {self.share!r}.")
        if self.sample < self.n_prototypes:
            raise InputError(
                f"A sample of {self.sample} patches cannot give {self.n_prototypes} prototypes; raise --sample."
            )
        if self.pca is not None and self.pca < 1:
            raise InputError(f"PCA needs at least one dimension, not {self.pca}.")
        if self.memory_gb <= 0:
            raise InputError(f"The memory cap must be positive, not {self.memory_gb} GB.")

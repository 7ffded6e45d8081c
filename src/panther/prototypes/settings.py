"""Settings of the prototypes."""

from dataclasses import dataclass
from typing import Literal

from panther.errors import InputError
from panther.limits import check_number, check_seed, check_whole


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
    memory_gb: float = 4.0  # cap on what the sample may take, or the samples of fits that walk together

    def __post_init__(self) -> None:
        check_whole("The number of prototypes", self.n_prototypes, 1, 100_000)
        check_whole("sample", self.sample, 1, 10**9)
        check_whole("restarts", self.restarts, 1, 1000)
        check_whole("passes", self.passes, 0, 1000)
        check_seed(self.seed)
        if self.share not in ("proportional", "equal"):
            raise InputError(f"The share over slides is 'proportional' or 'equal', not {self.share!r}.")
        if self.sample < self.n_prototypes:
            raise InputError(
                f"A sample of {self.sample} patches cannot give {self.n_prototypes} prototypes; raise `sample=`."
            )
        if self.pca is not None:
            check_whole("pca", self.pca, 1, 10**6)
        check_number("memory_gb", self.memory_gb, 0, above=True)

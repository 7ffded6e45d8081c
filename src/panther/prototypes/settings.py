"""Settings of the prototypes."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from panther.errors import InputError, suggestion
from panther.limits import check_number, check_seed, check_whole, make_plain

ELSEWHERE = {  # what `Panther` calls the same, in scikit-learn's words
    "n_init": "restarts",
    "max_iter": "passes",
    "n_sample_patches": "sample",
    "random_state": "seed",
    "n_clusters": "n_prototypes",
}


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
    centre: Literal["slide", "site"] | None = None  # whose mean is taken from the patches first

    def __post_init__(self) -> None:
        make_plain(self)
        check_whole("The number of prototypes", self.n_prototypes, 1, 100_000)
        check_whole("sample", self.sample, 1, 10**9)
        check_whole("restarts", self.restarts, 1, 1000)
        check_whole("passes", self.passes, 0, 1000)
        check_seed(self.seed)
        if self.share not in ("proportional", "equal"):
            raise InputError(f"The share over slides is 'proportional' or 'equal', not {self.share!r}.")
        if self.sample < self.n_prototypes:
            raise InputError(
                f"A sample of {self.sample} patches cannot give {self.n_prototypes} prototypes; ask for fewer with `n_prototypes=`, or raise "
                "`sample=` if the slides have that many patches."
            )
        if self.pca is not None:
            check_whole("pca", self.pca, 1, 10**6)
        check_number("memory_gb", self.memory_gb, 0, above=True)
        if self.centre not in (None, "slide", "site"):
            raise InputError(
                f"Patches are centred by 'slide' or 'site', not {self.centre!r}; give one of them as `centre=`."
            )

    @property
    def projects(self) -> bool:
        """Whether features are changed one by one before they meet prototypes."""
        return self.normalise or self.pca is not None


def kmeans_settings(given: Mapping[str, Any], **own: Any) -> KMeansSettings:
    """Settings from the keywords of a user, beside those that the caller sets; an unknown one is refused with what was probably meant."""
    known = [field.name for field in fields(KMeansSettings)]
    for name in given:
        if name not in known:
            raise InputError(f"K-means has no setting `{name}=`; {suggestion(name, known, ELSEWHERE)}.")
    return KMeansSettings(**{**own, **given})

"""The scikit-learn habit: fit on training bags, transform any bags; and one function for one bag."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from panther.aggregators import build
from panther.aggregators.cohort import embed_sample
from panther.errors import InputError
from panther.execution import Work, map_all, open_executor
from panther.prototypes import KMeansSettings, fit_prototypes
from panther.storage.bags import BagLike, as_bag
from panther.storage.embeddings import column_name
from panther.types import Aggregator, Bag, Prototypes, SlideEmbedding


def embed(
    bag: BagLike, prototypes: Prototypes, method: str = "panther", *, with_assignment: bool = False, **options: Any
) -> SlideEmbedding:
    """Embed one bag (a tensor, an array, a `Bag`, or the path of a feature file) on fitted prototypes.

    ``with_assignment`` also returns which patch belongs to which prototype, `assignment` (N, C); other ``options`` are the method's.

    >>> embedding = panther.embed(features, panther.load_prototypes("protos.safetensors"), preset="calibrated")
    >>> embedding.vector.shape, embedding.tokens.shape, embedding.aux["effective_prototypes"]
    """
    return embed_sample(as_bag(bag), prototypes, build(method, prototypes, options), with_assignment=with_assignment)


class Panther(TransformerMixin, BaseEstimator):
    """Unsupervised slide embeddings: K-means prototypes on training bags, one Gaussian mixture per bag.

    Parameters
    ----------
    n_prototypes : int
        C of the paper.
    preset : str
        `paper`, `published-code` or `calibrated`, as in `panther embed`.
    readout : str
        `all`, `wa`, `top` or `bottom`.
    em_options : mapping, optional
        Single settings over the preset: steps, tau, variance, temperature.
    sample : int
        Patches on which K-means starts, as in `panther prototypes`.
    restarts : int
        Starts of K-means on that sample; the best one goes on.
    passes : int
        Passes over all patches.
    normalise : bool
        Whether features are L2-normalised first.
    pca : int, optional
        Dimensions to keep.
    random_state : int
        Seed.
    n_jobs : int
        Worker processes for `transform`; 1 works in this process, -1 takes one per core.

    Examples
    --------
    >>> embeddings = Panther(n_prototypes=16, random_state=0).fit(train_bags).transform(test_bags)
    """

    def __init__(
        self,
        n_prototypes: int = 16,
        *,
        preset: str = "paper",
        readout: str = "all",
        em_options: Mapping[str, Any] | None = None,
        sample: int = 20_000,
        restarts: int = 5,
        passes: int = 3,
        normalise: bool = False,
        pca: int | None = None,
        random_state: int = 0,
        n_jobs: int = 1,
    ) -> None:
        self.n_prototypes = n_prototypes
        self.preset = preset
        self.readout = readout
        self.em_options = em_options
        self.sample = sample
        self.restarts = restarts
        self.passes = passes
        self.normalise = normalise
        self.pca = pca
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: Sequence[BagLike], y: Any = None) -> "Panther":
        """Fit prototypes on training bags, in whatever order they come; unlike the command it refuses the whole if one bag is bad."""
        bags = _in_order_of_content([as_bag(bag, str(index)) for index, bag in enumerate(X)])
        settings = KMeansSettings(
            n_prototypes=self.n_prototypes,
            seed=self.random_state,
            sample=self.sample,
            restarts=self.restarts,
            passes=self.passes,
            normalise=self.normalise,
            pca=self.pca,
        )
        fitted = fit_prototypes(bags, settings)
        if fitted.failures:
            raise InputError(next(iter(fitted.failures.values())))
        self.prototypes_ = fitted.prototypes
        self.n_features_in_ = fitted.prototypes.dim_in
        return self

    def transform(self, X: Sequence[BagLike]) -> np.ndarray:
        """(n, out_dim) float32, one row a bag."""
        check_is_fitted(self)
        bags = [as_bag(bag, str(index)) for index, bag in enumerate(X)]
        module = build("panther", self.prototypes_, self._options())
        function = partial(_vector, prototypes=self.prototypes_, module=module)
        # one job stays in this process: bags in memory need not be copied, and scripts no `if __name__ == "__main__"`
        with nullcontext() if self.n_jobs == 1 else open_executor(max(self.n_jobs, 0)) as executor:
            rows = map_all(function, bags, "embedding", Work(executor))
        return np.stack(rows) if rows else np.empty((0, module.out_dim), np.float32)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Name each number: `C3:mu:17`."""
        check_is_fitted(self)
        columns = build("panther", self.prototypes_, self._options()).columns()
        return np.array([column_name(*column) for column in columns], dtype=object)

    def _options(self) -> dict[str, Any]:
        return {"preset": self.preset, "readout": self.readout, **(self.em_options or {})}


def _in_order_of_content(bags: Sequence[Bag]) -> list[Bag]:
    """Bags in an order, and under names, that depend on their content alone: patches are drawn by name, sums are added up in order."""
    if len({bag.sample for bag in bags}) < len(bags):
        raise InputError("Two bags have the same slide id; ids must be unique.")
    keys = [bag.fingerprint() for bag in bags]
    order = sorted(range(len(bags)), key=lambda index: keys[index])
    return [replace(bags[index], slide_id=f"{keys[index]}-{rank}") for rank, index in enumerate(order)]


def _vector(bag: Bag, *, prototypes: Prototypes, module: Aggregator) -> np.ndarray:
    return embed_sample(bag, prototypes, module).vector.numpy()

"""Bags to slide embeddings as a scikit-learn transformer."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from panther.aggregators import build
from panther.aggregators.embed import embed_sample
from panther.engine import LOCAL, Work, map_all, open_work
from panther.errors import InputError
from panther.estimators.site_kfold import seed_of
from panther.prototypes import KMeansSettings, fit_bags
from panther.storage.bags import BagsLike, Listing, as_bag, as_bags, is_series
from panther.storage.embeddings import column_name
from panther.storage.prototypes import as_prototypes
from panther.types import Aggregator, Bag, Prototypes

EM_SETTINGS = ("tau", "steps", "variance", "temperature", "covariance", "weights")  # None: value of the preset


class Panther(TransformerMixin, BaseEstimator):
    r"""Unsupervised slide embeddings: prototypes by K-means on training bags, then one Gaussian mixture per bag.

    A bag is the patches of one slide (or patient): an array or tensor (N, d), a `Bag`, or the path of a feature file. Several are a list of
    these, an array (n, N, d), or a folder of feature files.

    Parameters
    ----------
    n_prototypes : int, default=16
        Number of prototypes, C of the paper.
    preset : {"paper", "published-code", "calibrated"}, default="paper"
        Values of the six EM settings that follow where they are None.
    tau : float, optional
        Pseudo-count of the prior; 0 is maximum likelihood.
    steps : int, optional
        EM steps per bag.
    variance : float or "pooled", optional
        Starting variance; "pooled" is the prototypes' variance within clusters.
    temperature : float, optional
        Above 1 it softens the posteriors, which saturate in many dimensions.
    covariance : {"diagonal", "tied", "spherical"}, optional
        Constraint of the components' variances.
    weights : {"free", "uniform"}, optional
        Whether mixture weights are estimated, or 1/C.
    readout : {"all", "wa", "top", "bottom"}, default="all"
        The whole mixture, the weighted average, or the component of the largest or smallest weight.
    blocks : sequence of str, default=()
        What follows the mixture's numbers, e.g. `("space",)`, for which bags need coordinates.
    n_init : int, default=5
        Starts of K-means on a sample of the patches; the best goes on.
    max_iter : int, default=3
        Iterations of K-means over all patches after that.
    n_sample_patches : int, default=20,000
        Size of the sample.
    normalise : bool, default=False
        Whether features are L2-normalised first.
    pca : int, optional
        Dimensions to keep of the features.
    random_state : int, RandomState or None, default=0
        Seed of K-means; None draws another one in every `fit`.
    n_jobs : int or None, default=1
        Worker processes of `fit` and `transform`: 1 or None work in this process, -1 takes one per core. The result is the same, byte by byte.
        Worth it where bags are files: arrays are copied to the workers.

    Attributes
    ----------
    prototypes_ : Prototypes
        Fitted prototypes with their diagnostics; `panther.save_prototypes` writes them.
    n_features_in_ : int
        Number of features d of a patch.
    n_iter_ : int
        Iterations over all patches that `fit` ran.

    See Also
    --------
    panther.fit_prototypes : The prototypes alone.
    panther.embed_cohort : Embeddings of a cohort as a table.

    Examples
    --------
    >>> import numpy as np
    >>> from panther import Panther
    >>> rng = np.random.default_rng(0)
    >>> bags = [rng.normal(size=(100, 8)) for _ in range(6)]
    >>> Panther(n_prototypes=4).fit(bags[:4]).transform(bags[4:]).shape  # C (1 + 2 d) numbers per bag
    (2, 68)
    """

    def __init__(
        self,
        n_prototypes: int = 16,
        *,
        preset: str = "paper",
        tau: float | None = None,
        steps: int | None = None,
        variance: float | str | None = None,
        temperature: float | None = None,
        covariance: str | None = None,
        weights: str | None = None,
        readout: str = "all",
        blocks: Sequence[str] = (),
        n_init: int = 5,
        max_iter: int = 3,
        n_sample_patches: int = 20_000,
        normalise: bool = False,
        pca: int | None = None,
        random_state: Any = 0,
        n_jobs: int | None = 1,
    ) -> None:
        self.n_prototypes = n_prototypes
        self.preset = preset
        self.tau = tau
        self.steps = steps
        self.variance = variance
        self.temperature = temperature
        self.covariance = covariance
        self.weights = weights
        self.readout = readout
        self.blocks = blocks
        self.n_init = n_init
        self.max_iter = max_iter
        self.n_sample_patches = n_sample_patches
        self.normalise = normalise
        self.pca = pca
        self.random_state = random_state
        self.n_jobs = n_jobs

    @classmethod
    def from_prototypes(cls, prototypes: Prototypes | Path | str, **parameters: Any) -> "Panther":
        """Fitted estimator on prototypes that exist already.

        Parameters
        ----------
        prototypes : Prototypes or path
            Prototypes, or the file that holds them.
        **parameters
            Parameters of `transform`: preset and EM settings, readout, blocks, n_jobs.

        Returns
        -------
        Panther
            Ready to `transform`.

        Examples
        --------
        >>> import torch
        >>> from panther import Panther, Prototypes
        >>> Panther.from_prototypes(Prototypes(torch.eye(3)), tau=1.0).transform([torch.randn(50, 3)]).shape
        (1, 21)
        """
        prototypes = as_prototypes(prototypes)
        return cls(len(prototypes), **parameters)._with(prototypes)

    def fit(self, X: BagsLike, y: Any = None) -> "Panther":
        """Fit prototypes on training bags; their order does not matter.

        Parameters
        ----------
        X : list of bags, or folder
            Training bags; if one cannot be used, the whole is refused.
        y : None
            Ignored; the embedding is unsupervised.

        Returns
        -------
        Panther
            The estimator itself.
        """
        settings = KMeansSettings(
            n_prototypes=self.n_prototypes,
            seed=seed_of(self.random_state),
            sample=self.n_sample_patches,
            restarts=self.n_init,
            passes=self.max_iter,
            normalise=self.normalise,
            pca=self.pca,
        )
        with _open_jobs(self.n_jobs) as work:
            names, bags = _in_order_of_content(_opened(X), work)
            try:
                fitted = fit_bags(bags, settings, work=work)
            except InputError as error:
                raise _with_names_of_bags(str(error), names) from error
        if fitted.failures:
            raise _with_names_of_bags(next(iter(fitted.failures.values())), names)
        self.n_iter_ = self.max_iter
        return self._with(fitted.prototypes)

    def transform(self, X: BagsLike) -> np.ndarray:
        """Embed bags on the fitted prototypes.

        Parameters
        ----------
        X : list of bags, or folder
            Bags of the encoder that the prototypes were fitted on.

        Returns
        -------
        ndarray of shape (n_bags, n_numbers), float32
            One row per bag; `get_feature_names_out` names the columns.
        """
        check_is_fitted(self)
        module = self._module()
        function = partial(_vector, prototypes=self.prototypes_, module=module)
        with _open_jobs(self.n_jobs) as work:
            rows = map_all(function, _opened(X), "embedding", work)
        return np.stack(rows) if rows else np.empty((0, module.out_dim), np.float32)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the columns.

        Parameters
        ----------
        input_features : None
            Ignored; features of patches have no names.

        Returns
        -------
        ndarray of str
            `C3:mu:17` is dimension 17 of the mean of prototype 3.
        """
        check_is_fitted(self)
        return np.array([column_name(*column) for column in self._module().columns()], dtype=object)

    def _with(self, prototypes: Prototypes) -> "Panther":
        self.prototypes_ = prototypes
        self.n_features_in_ = prototypes.dim_in
        return self

    def _module(self) -> Aggregator:
        explicit = {name: getattr(self, name) for name in EM_SETTINGS if getattr(self, name) is not None}
        read = {"preset": self.preset, "readout": self.readout, "blocks": self.blocks}
        return build("panther", self.prototypes_, {**read, **explicit})

    def __sklearn_tags__(self) -> Tags:
        """Bags instead of rows; the output is float32 for every input."""
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.three_d_array = False, True
        tags.transformer_tags.preserves_dtype = []
        return tags


@contextmanager
def _open_jobs(n_jobs: int | None) -> Iterator[Work]:
    """Worker processes; one job stays in this process: bags in memory are not copied, scripts need no `if __name__ == "__main__"`."""
    count = effective_n_jobs(n_jobs)
    if count == 1:
        yield LOCAL
        return
    with open_work(count) as work:
        yield work


def _opened(X: BagsLike) -> list[Bag]:
    """Bags of a list or array, one by one, as a pipeline counts them; of a folder or listing, in its order."""
    if isinstance(X, (str, Path, Listing, Mapping)) or is_series(X):
        listing = as_bags(X)
        if listing.problems:
            raise InputError(next(iter(listing.problems.values())))
        return [ref.open() for ref in listing.refs]
    bags = [as_bag(bag, str(index)) for index, bag in enumerate(X)]
    if isinstance(X, Iterator) and not bags:
        raise InputError("The generator holds no bags; one that was read to its end must be made again, or be a list.")
    return bags


def _in_order_of_content(bags: Sequence[Bag], work: Work) -> tuple[dict[str, str], list[Bag]]:
    """Bags ordered and named by their content, because sampling depends on names and sums on the order; and the original names."""
    if len({bag.sample for bag in bags}) < len(bags):
        raise InputError("Two bags have the same slide id; ids must be unique.")
    keys = map_all(Bag.fingerprint, bags, "hashing", work)
    order = sorted(range(len(bags)), key=lambda index: keys[index])
    names = {f"{keys[index]}-{rank}": bags[index].sample for rank, index in enumerate(order)}
    renamed = [replace(bags[index], slide_id=name) for index, name in zip(order, names, strict=True)]
    return names, renamed


def _with_names_of_bags(message: str, names: Mapping[str, str]) -> InputError:
    """Error with the original names."""
    for name, original in names.items():
        message = message.replace(name, original)
    return InputError(message)


def _vector(bag: Bag, *, prototypes: Prototypes, module: Aggregator) -> np.ndarray:
    return embed_sample(bag, prototypes, module).vector.numpy()

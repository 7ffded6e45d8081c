"""Scaling of embeddings and linear probes (classes, numbers, survival) as scikit-learn estimators.

Pipelines pass arrays without column names, so the layout of an embedding is inferred from its numbers.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate, combinations
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, OneToOneFeatureMixin, RegressorMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from panther.aggregators import mixture_columns
from panther.aggregators.blocks import BLOCKS
from panther.errors import InputError
from panther.estimators.site_kfold import seed_of
from panther.evaluation.survival_metrics import concordance
from panther.models.blocks import Columns
from panther.models.probes import fit_cox, fit_logistic, fit_ridge
from panther.models.scaling import AnyScaler, Part, build_scaler, fit_parts, scaler_parts
from panther.models.settings import Named
from panther.storage.embeddings import column_name

SUM_TOLERANCE = 1e-3  # of the sum of a slide's shares, also in float16
PANTHER = Named(name="panther")


def panther_parts(x: np.ndarray, n_prototypes: int | None = None) -> list[Part] | None:
    """Mixture and blocks of embeddings (n, D) of `Panther` with the readout `all`; None for other rows.

    Without ``n_prototypes``, C is inferred: the shares, at equal distances in a row, add up to 1.
    """
    for count, dim, blocks in _layouts(x.shape[1], n_prototypes):
        token = 1 + 2 * dim
        shares = x[:, : count * token : token]
        if (shares >= 0).all() and np.abs(shares.sum(1) - 1).max() < SUM_TOLERANCE:
            mixture = Part(list(mixture_columns(tuple(range(count)), dim)), PANTHER)
            optional = [columns for name in blocks for columns in BLOCKS[name].layout(count, dim)]
            return [mixture, *(Part(columns, PANTHER, optional=True) for columns in optional)]
    if n_prototypes is not None:
        raise InputError(
            f"{x.shape[1]} numbers, expected mixtures of n_prototypes={n_prototypes} (readout='all'), C (1 + 2 d) and blocks"
        )
    return None


def _layouts(width: int, n_prototypes: int | None) -> Iterator[tuple[int, int, tuple[str, ...]]]:
    """C, d and blocks of embeddings of this width; without blocks first, then large C first."""
    for number in range(len(BLOCKS) + 1):
        for blocks in combinations(BLOCKS, number):
            for count in [n_prototypes] if n_prototypes is not None else range(width // 3, 0, -1):
                # widths at d = 0 and 1; the width is linear in d
                zero, one = (count * (1 + 2 * d) + sum(BLOCKS[name].width(count, d) for name in blocks) for d in (0, 1))
                dim, rest = divmod(width - zero, one - zero)
                if dim > 0 and not rest:
                    yield count, dim, blocks


FLOATS = (np.float32, np.float64)


class EmbeddingScaler(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Scale slide embeddings for any model that follows.

    Parameters
    ----------
    scaling : {"share-weighted", "balanced", "block", "none"}, default="share-weighted"
        "share-weighted" weights the parameters of a mixture by the root of their prototype's share, the default of the package.
    n_prototypes : int, optional
        C of the embeddings; found from the numbers where they come from `Panther`.

    Attributes
    ----------
    scaler_ : Scaler or JointScaler
        Fitted scaling; of `Panther(blocks=...)`, of the mixture and of each block.
    columns_ : list of (prototype, statistic, dimension) or None
        What each number of an embedding is; None where the rows are no mixtures.
    n_features_in_ : int
        Numbers of an embedding.
    feature_names_in_ : ndarray of str
        Their names, where `fit` was given a DataFrame.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from panther import EmbeddingScaler, Panther
    >>> model = make_pipeline(Panther(16), EmbeddingScaler(), LogisticRegression(C=0.1))
    """

    def __init__(self, scaling: str = "share-weighted", n_prototypes: int | None = None) -> None:
        self.scaling = scaling
        self.n_prototypes = n_prototypes

    def fit(self, X: Any, y: Any = None) -> "EmbeddingScaler":
        """Fit on training rows, and on nothing else.

        Parameters
        ----------
        X : array-like of shape (n, D)
            Embeddings of the training slides.
        y : None
            Ignored.

        Returns
        -------
        EmbeddingScaler
            The estimator itself.
        """
        x = validate_data(self, X, dtype=FLOATS)
        self.scaler_, self.columns_ = fit_recognised(self.scaling, x, self.n_prototypes)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Scale rows.

        Parameters
        ----------
        X : array-like of shape (n, D)
            Embeddings, made as the training slides' were.

        Returns
        -------
        ndarray of shape (n, D'), float32
            With "share-weighted" the slide's mean follows the prototypes' numbers, before those of blocks: D' = D + d.
        """
        check_is_fitted(self)
        return scaled(self.scaler_, validate_data(self, X, dtype=FLOATS, reset=False))

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the scaled numbers.

        Parameters
        ----------
        input_features : array-like of str, optional
            Names of the embedding's numbers.

        Returns
        -------
        ndarray of str
            `C3:mu:17` as of `Panther`, or the input's names where the rows are no mixtures.
        """
        names = super().get_feature_names_out(input_features)
        if self.columns_ is None:
            return names
        parts = scaler_parts(self.scaler_)
        ends = accumulate(part.dim_in for part in parts)
        by_part = [part.columns(self.columns_[end - part.dim_in : end]) for part, end in zip(parts, ends, strict=True)]
        return np.array([column_name(*column) for columns in by_part for column in columns], dtype=object)

    def __sklearn_tags__(self) -> Tags:
        """The output is float32 for every input."""
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        return tags


def fit_recognised(scaling: str, x: np.ndarray, n_prototypes: int | None) -> tuple[AnyScaler, Columns | None]:
    """Scaling of training rows (n, D), of a mixture and each of its blocks, and their columns; other rows are scaled as a whole, without columns."""
    parts = panther_parts(x, n_prototypes)
    if parts is None:
        return build_scaler(scaling)(x), None
    return fit_parts(Named(name=scaling), x, parts), [column for part in parts for column in part.columns]


def scaled(scaler: AnyScaler, x: np.ndarray) -> np.ndarray:
    """Scaled rows (n, D'), float32."""
    return scaler(torch.from_numpy(x.astype(np.float32))).numpy()  # a copy: x may be a memory map that is read only


class _EmbeddingProbe(BaseEstimator):
    """Base of the probes: scale the embeddings, then weigh their statistics."""

    def __init__(self, scaling: str = "share-weighted", n_prototypes: int | None = None, random_state: Any = 0) -> None:
        self.scaling = scaling
        self.n_prototypes = n_prototypes
        self.random_state = random_state

    def _fit_scaler(self, x: np.ndarray, groups: Sequence[Any] | None) -> tuple[np.ndarray, dict[str, Any]]:
        """Scaled training rows, and settings of the search for penalty and weights."""
        self.scaler_, columns = fit_recognised(self.scaling, x, self.n_prototypes)
        search = {
            "blocks": None if columns is None else self.scaler_.blocks(columns),
            "groups": None if groups is None else np.asarray(groups),
            "seed": seed_of(self.random_state),
        }
        return scaled(self.scaler_, x), search

    def _logits(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        return self.probe_.logits(scaled(self.scaler_, validate_data(self, X, dtype=FLOATS, reset=False)))


class EmbeddingClassifier(ClassifierMixin, _EmbeddingProbe):
    """Logistic regression on scaled embeddings; its penalty and the weights of their statistics come from inner cross-validation.

    Parameters
    ----------
    scaling : {"share-weighted", "balanced", "block", "none"}, default="share-weighted"
        As of `EmbeddingScaler`.
    n_prototypes : int, optional
        C of the embeddings; found from the numbers where they come from `Panther`.
    random_state : int, RandomState or None, default=0
        Seed of the inner folds.

    Attributes
    ----------
    classes_ : ndarray
        Classes, sorted.
    probe_ : Probe
        Weights, penalty and, with "share-weighted", the share of each statistic.
    scaler_ : Scaler or JointScaler
        Fitted scaling; of `Panther(blocks=...)`, of the mixture and of each block.
    n_features_in_ : int
        Numbers of an embedding.
    feature_names_in_ : ndarray of str
        Their names, where `fit` was given a DataFrame.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from panther import EmbeddingClassifier, Panther
    >>> model = make_pipeline(Panther(16), EmbeddingClassifier())
    >>> model.fit(bags, labels, embeddingclassifier__groups=patients)  # doctest: +SKIP
    """

    def fit(self, X: Any, y: Any, groups: Sequence[Any] | None = None) -> "EmbeddingClassifier":
        """Fit on embeddings and their classes.

        Parameters
        ----------
        X : array-like of shape (n, D)
            Embeddings.
        y : array-like of shape (n,)
            Classes.
        groups : sequence of length n, optional
            Patient of each row; the rows of a patient stay in one inner fold.

        Returns
        -------
        EmbeddingClassifier
            The estimator itself.
        """
        x, y = validate_data(self, X, y, dtype=FLOATS, ensure_min_samples=2)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        rows, search = self._fit_scaler(x, groups)
        self.probe_ = fit_logistic(rows, labels, len(self.classes_), **search)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probability of each class.

        Parameters
        ----------
        X : array-like of shape (n, D)
            Embeddings.

        Returns
        -------
        ndarray of shape (n, n_classes)
            In the order of `classes_`.
        """
        logits = self._logits(X)
        odds = np.exp(logits - logits.max(1, keepdims=True))
        return odds / odds.sum(1, keepdims=True)

    def predict(self, X: Any) -> np.ndarray:
        """Likeliest class of each row.

        Parameters
        ----------
        X : array-like of shape (n, D)
            Embeddings.

        Returns
        -------
        ndarray of shape (n,)
            Classes.
        """
        likeliest = self.predict_proba(X).argmax(1)
        return self.classes_[likeliest]


class EmbeddingRegressor(RegressorMixin, _EmbeddingProbe):
    """Ridge regression on scaled embeddings; its penalty and the weights of their statistics come from inner cross-validation.

    Parameters
    ----------
    scaling : {"share-weighted", "balanced", "block", "none"}, default="share-weighted"
        As of `EmbeddingScaler`.
    n_prototypes : int, optional
        C of the embeddings; found from the numbers where they come from `Panther`.
    random_state : int, RandomState or None, default=0
        Seed of the inner folds.

    Attributes
    ----------
    probe_ : Probe
        Weights, penalty and, with "share-weighted", the share of each statistic.
    scaler_ : Scaler or JointScaler
        Fitted scaling; of `Panther(blocks=...)`, of the mixture and of each block.
    n_features_in_ : int
        Numbers of an embedding.
    feature_names_in_ : ndarray of str
        Their names, where `fit` was given a DataFrame.

    Examples
    --------
    >>> import numpy as np
    >>> from panther import EmbeddingRegressor
    >>> embeddings = np.random.default_rng(0).normal(size=(40, 6))
    >>> model = EmbeddingRegressor().fit(embeddings, 3 * embeddings[:, 0] + 10)
    >>> round(model.score(embeddings, 3 * embeddings[:, 0] + 10), 2)  # R2
    1.0
    """

    def fit(self, X: Any, y: Any, groups: Sequence[Any] | None = None) -> "EmbeddingRegressor":
        """Fit on embeddings and their values.

        Parameters
        ----------
        X : array-like of shape (n, D)
            Embeddings.
        y : array-like of shape (n,)
            Numbers.
        groups : sequence of length n, optional
            Patient of each row; the rows of a patient stay in one inner fold.

        Returns
        -------
        EmbeddingRegressor
            The estimator itself.
        """
        x, y = validate_data(self, X, y, dtype=FLOATS, ensure_min_samples=2, y_numeric=True)
        rows, search = self._fit_scaler(x, groups)
        self.probe_ = fit_ridge(rows, np.asarray(y, np.float64), **search)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Value of each row.

        Parameters
        ----------
        X : array-like of shape (n, D)
            Embeddings.

        Returns
        -------
        ndarray of shape (n,)
            Numbers.
        """
        return self._logits(X)[:, 0]


class EmbeddingCox(_EmbeddingProbe):
    """Ridge Cox regression on scaled embeddings; its penalty and the weights of their statistics come from inner cross-validation.

    Parameters
    ----------
    scaling : {"share-weighted", "balanced", "block", "none"}, default="share-weighted"
        As of `EmbeddingScaler`.
    n_prototypes : int, optional
        C of the embeddings; found from the numbers where they come from `Panther`.
    random_state : int, RandomState or None, default=0
        Seed of the inner folds.

    Attributes
    ----------
    probe_ : Probe
        Weights, penalty and, with "share-weighted", the share of each statistic.
    scaler_ : Scaler or JointScaler
        Fitted scaling; of `Panther(blocks=...)`, of the mixture and of each block.
    n_features_in_ : int
        Numbers of an embedding.
    feature_names_in_ : ndarray of str
        Their names, where `fit` was given a DataFrame.

    Examples
    --------
    >>> import numpy as np
    >>> from panther import EmbeddingCox
    >>> rng = np.random.default_rng(0)
    >>> embeddings, days = rng.normal(size=(40, 6)), rng.exponential(365, 40)
    >>> survival = np.column_stack([days, np.ones(40)])  # the time, and whether the event was seen then
    >>> EmbeddingCox().fit(embeddings, survival).predict(embeddings).shape
    (40,)
    """

    def fit(self, X: Any, y: Any, groups: Sequence[Any] | None = None) -> "EmbeddingCox":
        """Fit on embeddings and follow-up.

        Parameters
        ----------
        X : array-like of shape (n, D)
            Embeddings.
        y : array-like of shape (n, 2), or structured array of length n
            The time, and whether the event was seen then (1) or not (0); or both as scikit-survival has them, a field of yes and no and one
            of times.
        groups : sequence of length n, optional
            Patient of each row; the rows of a patient stay in one inner fold.

        Returns
        -------
        EmbeddingCox
            The estimator itself.
        """
        x = validate_data(self, X, dtype=FLOATS, ensure_min_samples=2)
        time, event = _survival(y, len(x))
        rows, search = self._fit_scaler(x, groups)
        self.probe_ = fit_cox(rows, time, event, **search)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Log-risk: the larger, the earlier the event.

        Parameters
        ----------
        X : array-like of shape (n, D)
            Embeddings.

        Returns
        -------
        ndarray of shape (n,)
            Log-risk.
        """
        return self._logits(X)[:, 0]

    def score(self, X: Any, y: Any) -> float:
        """Harrell's concordance index of the log-risk.

        Parameters
        ----------
        X : array-like of shape (n, D)
            Embeddings.
        y : array-like of shape (n, 2), or structured array of length n
            The time, and whether the event was seen then (1) or not (0); or both as scikit-survival has them, a field of yes and no and one
            of times.

        Returns
        -------
        float
            0.5 is chance, 1 the right order of all comparable pairs.
        """
        risk = self.predict(X)
        return float(concordance(*_survival(y, len(risk)), risk))

    def __sklearn_tags__(self) -> Tags:
        """The target is required."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


def _survival(y: Any, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Times (n,) and events (n,), also of scikit-survival's structured arrays."""
    expected = "a time of at least 0, and 1 where the event was observed, else 0"
    follow_up = np.asarray(y)
    if follow_up.dtype.names:
        kinds = {name: follow_up.dtype[name].kind for name in follow_up.dtype.names}
        event = [name for name, kind in kinds.items() if kind == "b"]
        time = [name for name, kind in kinds.items() if kind in "fiu"]
        if len(event) != 1 or len(time) != 1:
            raise InputError(f"y has the fields {follow_up.dtype}; expected an event (yes, no) and a time")
        follow_up = np.column_stack([follow_up[time[0]].astype(float), follow_up[event[0]].astype(float)])
    if follow_up.shape != (rows, 2):
        raise InputError(f"y has shape {follow_up.shape}; expected ({rows}, 2): {expected}")
    try:
        times, events = follow_up.astype(float).T
    except (TypeError, ValueError) as error:
        raise InputError(f"y: {error}; expected in each row {expected}") from error
    is_valid = np.column_stack([np.isfinite(times) & (times >= 0), np.isin(events, (0, 1))])
    for row, column in np.argwhere(~is_valid):
        raise InputError(f"y[{row}, {column}] is {follow_up[row, column]}; expected {expected}")
    return times, events.astype(bool)

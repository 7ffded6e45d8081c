"""What follows `Panther` in a scikit-learn pipeline: the package's scaling, and its probes for classes and survival."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted

from panther.errors import InputError
from panther.models.fisher import Columns
from panther.models.probes import fit_cox, fit_logistic
from panther.models.scaling import Scaler, build_scaler

SUM_TOLERANCE = 1e-3  # shares of a slide add up to 1, in float16 as well


def mixture_columns(x: np.ndarray, n_prototypes: int | None = None) -> Columns | None:
    """Prototype, statistic and dimension of each number of embeddings (n, C (1 + 2 d)), as `Panther` makes them with the readout `all`.

    Without ``n_prototypes``, C is found from the numbers: the shares stand at equal distances and add up to 1 in every row. None where no C
    fits, i.e. the rows are something else.
    """
    width = x.shape[1]
    counts = [n_prototypes] if n_prototypes is not None else range(width // 3, 0, -1)
    for count in counts:
        token = width // count
        if width % count or token % 2 == 0:
            continue
        shares = x[:, ::token]
        if (shares >= 0).all() and np.abs(shares.sum(1) - 1).max() < SUM_TOLERANCE:
            names = [("weight", -1), *((s, j) for s in ("mean", "variance") for j in range((token - 1) // 2))]
            return [(c, statistic, j) for c in range(count) for statistic, j in names]
    if n_prototypes is not None:
        raise InputError(
            f"The rows have {width} numbers, which are no mixtures of n_prototypes={n_prototypes}: expected C (1 + 2 d) numbers, of each prototype "
            "its share, mean and variance, the shares adding up to 1. Give the embeddings of Panther with readout='all', or leave n_prototypes out."
        )
    return None


class EmbeddingScaler(TransformerMixin, BaseEstimator):
    """Scale slide embeddings for any model that follows.

    Parameters
    ----------
    scaling : str
        `fisher` (mixtures in the metric of their Fisher information, the default of the package), `balanced`, `block`, `coordinate` or `none`.
    n_prototypes : int, optional
        C of the embeddings; found from the numbers where they come from `Panther`.

    Attributes
    ----------
    scaler_ : Scaler
        The fitted scaling.
    n_features_in_ : int
        Numbers of an embedding.

    Examples
    --------
    >>> make_pipeline(Panther(16), EmbeddingScaler(), LogisticRegression(C=0.1)).fit(train_bags, labels)
    """

    def __init__(self, scaling: str = "fisher", n_prototypes: int | None = None) -> None:
        self.scaling = scaling
        self.n_prototypes = n_prototypes

    def fit(self, X: Any, y: Any = None) -> "EmbeddingScaler":
        """Fit on training rows (n, D), and on nothing else."""
        self.scaler_, _ = _fitted_scaler(self, _rows(X))
        self.n_features_in_ = self.scaler_.dim_in
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Scaled rows (n, D'); with `fisher` the slide's mean follows the prototypes' numbers."""
        check_is_fitted(self)
        return self.scaler_(torch.as_tensor(_rows(X))).numpy()


class EmbeddingClassifier(ClassifierMixin, BaseEstimator):
    """The package's probe: logistic regression on scaled embeddings, its penalty and the weights of their statistics by inner cross-validation.

    Parameters
    ----------
    scaling, n_prototypes
        As of `EmbeddingScaler`.
    random_state : int
        Seed of the inner folds.

    Attributes
    ----------
    classes_ : ndarray
        Classes, sorted.
    probe_ : Probe
        Weights, penalty and, with `fisher`, the share of each statistic.

    Examples
    --------
    >>> make_pipeline(Panther(16), EmbeddingClassifier()).fit(bags, labels, embeddingclassifier__groups=patients)
    """

    def __init__(self, scaling: str = "fisher", n_prototypes: int | None = None, random_state: int = 0) -> None:
        self.scaling = scaling
        self.n_prototypes = n_prototypes
        self.random_state = random_state

    def fit(self, X: Any, y: Any, groups: Sequence[Any] | None = None) -> "EmbeddingClassifier":
        """Fit on rows (n, D) and their classes (n,); ``groups`` names the patient of each row, whose rows stay in one inner fold."""
        x = _rows(X)
        self.classes_, labels = np.unique(np.asarray(y), return_inverse=True)
        self.scaler_, search = _fitted_scaler(self, x)
        search |= {"groups": None if groups is None else np.asarray(groups), "seed": self.random_state}
        scaled = self.scaler_(torch.as_tensor(x)).numpy()
        self.probe_ = fit_logistic(scaled, labels, len(self.classes_), **search)
        self.n_features_in_ = self.scaler_.dim_in
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probability of each class (n, K)."""
        check_is_fitted(self)
        logits = self.probe_.logits(self.scaler_(torch.as_tensor(_rows(X))).numpy())
        odds = np.exp(logits - logits.max(1, keepdims=True))
        return odds / odds.sum(1, keepdims=True)

    def predict(self, X: Any) -> np.ndarray:
        """Likeliest class of each row."""
        best = self.predict_proba(X).argmax(1)
        return self.classes_[best]


class EmbeddingCox(BaseEstimator):
    """The package's survival probe: ridge Cox regression on scaled embeddings; parameters as of `EmbeddingClassifier`.

    Examples
    --------
    >>> risk = EmbeddingCox().fit(embeddings, np.column_stack([days, died])).predict(others)
    """

    def __init__(self, scaling: str = "fisher", n_prototypes: int | None = None, random_state: int = 0) -> None:
        self.scaling = scaling
        self.n_prototypes = n_prototypes
        self.random_state = random_state

    def fit(self, X: Any, y: Any, groups: Sequence[Any] | None = None) -> "EmbeddingCox":
        """Fit on rows (n, D) and (n, 2): the time, and whether the event was seen then (1) or not (0)."""
        x, outcome = _rows(X), np.asarray(y)
        if outcome.ndim != 2 or outcome.shape != (len(x), 2) or not np.isin(outcome[:, 1].astype(float), (0, 1)).all():
            raise InputError(
                f"y has shape {outcome.shape}; expected ({len(x)}, 2): the time, and 1 where the event was seen, else 0."
            )
        self.scaler_, search = _fitted_scaler(self, x)
        search |= {"groups": None if groups is None else np.asarray(groups), "seed": self.random_state}
        scaled = self.scaler_(torch.as_tensor(x)).numpy()
        self.probe_ = fit_cox(scaled, outcome[:, 0].astype(float), outcome[:, 1].astype(bool), **search)
        self.n_features_in_ = self.scaler_.dim_in
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Log-risk (n,): the larger, the earlier."""
        check_is_fitted(self)
        return self.probe_.logits(self.scaler_(torch.as_tensor(_rows(X))).numpy())[:, 0]


def _rows(X: Any) -> np.ndarray:
    return check_array(X, dtype=[np.float32, np.float64])


def _fitted_scaler(model: Any, x: np.ndarray) -> tuple[Scaler, dict[str, Any]]:
    """Fitted scaling, and the statistics that a probe weighs, where it does."""
    columns = mixture_columns(x, model.n_prototypes)
    scaler = build_scaler(model.scaling).fit(x, columns)
    return scaler, {"blocks": None if columns is None else scaler.blocks(columns)}

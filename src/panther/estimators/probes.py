"""The package's linear probes, for classes, numbers and survival, as scikit-learn estimators of embeddings."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from panther.errors import InputError
from panther.estimators.scaling import FLOATS, fit_recognised, scaled
from panther.evaluation.survival_metrics import concordance
from panther.limits import seed_of
from panther.models.probes import fit_cox, fit_logistic, fit_ridge


class _EmbeddingProbe(BaseEstimator):
    """What all probes do: scale the embeddings, then weigh their statistics."""

    def __init__(self, scaling: str = "share-weighted", n_prototypes: int | None = None, random_state: Any = 0) -> None:
        self.scaling = scaling
        self.n_prototypes = n_prototypes
        self.random_state = random_state

    def _fit_scaler(self, x: np.ndarray, groups: Sequence[Any] | None) -> tuple[np.ndarray, dict[str, Any]]:
        """Training rows, scaled, and how penalty and weights of the statistics are to be searched."""
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
    scaling : {"share-weighted", "balanced", "block", "coordinate", "none"}, default="share-weighted"
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
    scaling : {"share-weighted", "balanced", "block", "coordinate", "none"}, default="share-weighted"
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
    scaling : {"share-weighted", "balanced", "block", "coordinate", "none"}, default="share-weighted"
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
        """It needs follow-up."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


def _columns(y: np.ndarray) -> np.ndarray:
    """Time and event side by side, also of scikit-survival's structured arrays, whose types tell the two apart."""
    if not y.dtype.names:
        return y
    kinds = {name: y.dtype[name].kind for name in y.dtype.names}
    event = [name for name, kind in kinds.items() if kind == "b"]
    time = [name for name, kind in kinds.items() if kind in "fiu"]
    if len(event) != 1 or len(time) != 1:
        raise InputError(
            f"y has the fields {y.dtype}; expected is one of yes and no, the event, and one of numbers, the time."
        )
    return np.column_stack([y[time[0]].astype(float), y[event[0]].astype(float)])


def _survival(y: Any, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Times (n,) and events (n,)."""
    expected = "the time, and 1 where the event was seen, else 0"
    follow_up = _columns(np.asarray(y))
    if follow_up.shape != (rows, 2):
        raise InputError(f"y has shape {follow_up.shape}; expected ({rows}, 2): {expected}.")
    try:
        time, event = follow_up.astype(float).T
    except (TypeError, ValueError) as error:
        raise InputError(f"y holds something that is no number; expected in each row: {expected}.") from error
    for column, good in enumerate((np.isfinite(time) & (time >= 0), np.isin(event, (0, 1)))):
        if not good.all():
            row = int(np.flatnonzero(~good)[0])
            what = ("a time of at least 0", "1 where the event was seen, else 0")[column]
            raise InputError(
                f"y[{row}, {column}] is {follow_up[row, column]}; expected is {what}. Mend it, or leave the row out."
            )
    return time, event.astype(bool)

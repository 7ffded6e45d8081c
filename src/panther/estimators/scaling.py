"""The package's scaling of embeddings as a scikit-learn transformer."""

from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from panther.errors import InputError
from panther.models.fisher import Columns
from panther.models.scaling import Scaler, build_scaler
from panther.storage.embeddings import column_name

SUM_TOLERANCE = 1e-3  # shares of a slide add up to 1, in float16 as well
FLOATS = (np.float32, np.float64)


class EmbeddingScaler(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Scale slide embeddings for any model that follows.

    Parameters
    ----------
    scaling : {"fisher", "balanced", "block", "coordinate", "none"}, default="fisher"
        "fisher" reads mixtures in the metric of their Fisher information, the default of the package.
    n_prototypes : int, optional
        C of the embeddings; found from the numbers where they come from `Panther`.

    Attributes
    ----------
    scaler_ : Scaler
        Fitted scaling.
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

    def __init__(self, scaling: str = "fisher", n_prototypes: int | None = None) -> None:
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
        self.columns_ = mixture_columns(x, self.n_prototypes)
        self.scaler_ = build_scaler(self.scaling).fit(x, self.columns_)
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
            With "fisher" the slide's mean follows the prototypes' numbers: D' = D + d.
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
        return np.array([column_name(*column) for column in self.scaler_.columns(self.columns_)], dtype=object)

    def __sklearn_tags__(self) -> Tags:
        """float32 whatever comes."""
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        return tags


def scaled(scaler: Scaler, x: np.ndarray) -> np.ndarray:
    """Scaled rows (n, D'), float32."""
    return scaler(torch.from_numpy(x.astype(np.float32))).numpy()  # a copy: x may be a memory map that is read only


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

"""The package's scaling of embeddings as a scikit-learn transformer."""

from itertools import accumulate
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from panther.estimators.recognised import panther_parts
from panther.models.blocks.joint_scaling import AnyScaler, fit_parts, scaler_parts
from panther.models.named import Named
from panther.models.scaling import build_scaler
from panther.models.share_weighted import Columns
from panther.storage.embeddings import column_name

FLOATS = (np.float32, np.float64)


class EmbeddingScaler(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Scale slide embeddings for any model that follows.

    Parameters
    ----------
    scaling : {"share-weighted", "balanced", "block", "coordinate", "none"}, default="share-weighted"
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
        own = [part.columns(self.columns_[end - part.dim_in : end]) for part, end in zip(parts, ends, strict=True)]
        return np.array([column_name(*column) for columns in own for column in columns], dtype=object)

    def __sklearn_tags__(self) -> Tags:
        """float32 whatever comes."""
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        return tags


def fit_recognised(scaling: str, x: np.ndarray, n_prototypes: int | None) -> tuple[AnyScaler, Columns | None]:
    """Scaling of training rows (n, D), a mixture and its blocks each by itself, and what each number is; whole where the rows are no mixtures."""
    parts = panther_parts(x, n_prototypes)
    if parts is None:
        return build_scaler(scaling).fit(x), None
    return fit_parts(Named(name=scaling), x, parts), [column for part in parts for column in part.columns]


def scaled(scaler: AnyScaler, x: np.ndarray) -> np.ndarray:
    """Scaled rows (n, D'), float32."""
    return scaler(torch.from_numpy(x.astype(np.float32))).numpy()  # a copy: x may be a memory map that is read only

"""Scikit-learn estimators: bags to embeddings (`Panther`), and what follows in a pipeline."""

from panther.estimators.panther import Panther
from panther.estimators.probes import EmbeddingClassifier, EmbeddingCox, EmbeddingRegressor, EmbeddingScaler

__all__ = ["EmbeddingClassifier", "EmbeddingCox", "EmbeddingRegressor", "EmbeddingScaler", "Panther"]

"""Prototypes: sampling, K-means, diagnostics."""

from panther.prototypes.fit import PrototypeFit, fit_bags, fit_many
from panther.prototypes.kmeans import KMeansSettings

__all__ = ["KMeansSettings", "PrototypeFit", "fit_bags", "fit_many"]

"""Prototypes: sampling, K-means, diagnostics."""

from panther.prototypes.fit import PrototypeFit, fit_bags, fit_many, fit_prototypes
from panther.prototypes.settings import KMeansSettings

__all__ = ["KMeansSettings", "PrototypeFit", "fit_bags", "fit_many", "fit_prototypes"]

"""Concordance: how far unsupervised prototypes agree with tissue classes, of a classifier trained on labelled tiles or of people."""

from panther.explain.concordance.agreement import Agreement, TumourMatch, agreement, match_tumour
from panther.explain.concordance.compare import Concordance
from panther.explain.concordance.make import concordance
from panther.explain.concordance.tissue_classifier import (
    ClassifierSettings,
    TissueClassifier,
    fit_classifier,
    load_classifier,
    save_classifier,
    train_tissue_classifier,
)

__all__ = [
    "Agreement",
    "ClassifierSettings",
    "Concordance",
    "TissueClassifier",
    "TumourMatch",
    "agreement",
    "concordance",
    "fit_classifier",
    "load_classifier",
    "match_tumour",
    "save_classifier",
    "train_tissue_classifier",
]

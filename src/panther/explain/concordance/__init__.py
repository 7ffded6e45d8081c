"""Concordance: how far unsupervised prototypes agree with tissue classes, of a probe trained on labelled tiles or of people."""

from panther.explain.concordance.mathematics import Agreement, TumourMatch, agreement, match_tumour
from panther.explain.concordance.probe import ProbeSettings, TissueProbe, fit_probe
from panther.explain.concordance.probe_file import load_probe, save_probe

__all__ = [
    "Agreement",
    "ProbeSettings",
    "TissueProbe",
    "TumourMatch",
    "agreement",
    "fit_probe",
    "load_probe",
    "match_tumour",
    "save_probe",
]

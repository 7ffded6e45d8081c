"""Figures of the report as plain Plotly dictionaries; `plotly.graph_objects.Figure(forest(...))` shows one in a notebook."""

from panther.report.figures._base import Figure
from panther.report.figures.cohort import counts_heatmap, histogram, stacked
from panther.report.figures.mixtures import scatter, scatter_by_number, shares, weights_boxes, weights_heatmap
from panther.report.figures.prototypes import contributions, group_shares, matrix
from panther.report.figures.results import Estimate, confusion, forest, learning_curves, roc, survival_curves

__all__ = [
    "Estimate",
    "Figure",
    "confusion",
    "contributions",
    "counts_heatmap",
    "forest",
    "group_shares",
    "histogram",
    "learning_curves",
    "matrix",
    "roc",
    "scatter",
    "scatter_by_number",
    "shares",
    "stacked",
    "survival_curves",
    "weights_boxes",
    "weights_heatmap",
]

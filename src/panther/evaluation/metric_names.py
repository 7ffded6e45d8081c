"""Names of metrics: those that tables print, with intervals and comparisons, and what people call them elsewhere."""

import math
from collections.abc import Mapping, Sequence

from panther.errors import suggestion

PRINTED: Mapping[str, tuple[str, ...]] = {  # by the kind of target
    "classification": ("balanced_accuracy", "weighted_f1", "quadratic_kappa", "auroc"),
    "survival": ("c_index", "c_index_uno"),
    "regression": ("pearson", "spearman", "r2", "mae"),
    "labels": ("macro_auroc",),  # and one of each label, see `label_metric`
}
SHOWN: Mapping[str, tuple[str, ...]] = {  # where a study does not say which
    "classification": ("balanced_accuracy", "weighted_f1"),
    "survival": ("c_index",),
    "regression": ("pearson", "r2", "mae"),
    "labels": ("macro_auroc",),
}
JUDGES = {"classification": "classes", "survival": "survival", "regression": "values", "labels": "several labels"}
LOWER_IS_BETTER = ("mae", "rmse", "integrated_brier")
THRESHOLD = ("balanced_accuracy", "weighted_f1", "quadratic_kappa")  # of predicted classes, not of their probabilities
LOWEST = {"r2": -math.inf, "quadratic_kappa": -1.0, "pearson": -1.0, "spearman": -1.0}  # others 0
TITLES = {
    "c_index": "c-index",
    "c_index_uno": "Uno's c-index",
    "balanced_accuracy": "Bal. acc.",
    "weighted_f1": "F1",
    "quadratic_kappa": "Quadratic-weighted kappa",
    "auroc": "AUROC",
    "pearson": "Pearson's r",
    "spearman": "Spearman's rho",
    "r2": "R2",
    "mae": "MAE",
    "macro_auroc": "mean AUROC",
}
ELSEWHERE = {  # the same thing in other packages' words
    **dict.fromkeys(("auc", "roc_auc", "roc-auc", "rocauc", "macro_auc"), "auroc"),
    **dict.fromkeys(("bacc", "bal_acc", "balanced-accuracy", "balanced_acc", "macro_recall"), "balanced_accuracy"),
    **dict.fromkeys(("f1", "f1_score", "f1-score", "f1_weighted", "weighted-f1"), "weighted_f1"),
    **dict.fromkeys(("kappa", "qwk", "cohen_kappa", "cohens_kappa", "quadratic_weighted_kappa"), "quadratic_kappa"),
    **dict.fromkeys(("cindex", "c-index", "ci", "concordance", "concordance_index", "harrell"), "c_index"),
    **dict.fromkeys(("uno", "uno_c_index", "c_index_ipcw", "ipcw"), "c_index_uno"),
    **dict.fromkeys(("r", "pearsonr", "pcc", "correlation"), "pearson"),
    **dict.fromkeys(("rho", "spearmanr", "srcc"), "spearman"),
    **dict.fromkeys(("r2_score", "rsquared", "r_squared"), "r2"),
    **dict.fromkeys(("mean_absolute_error", "l1"), "mae"),
}
UNPRINTED = ("accuracy", "time_auc", "integrated_brier", "rmse")  # in metrics.csv, without an interval
OF_LABEL = "auroc_"


def label_metric(label: str) -> str:
    """Metric of one of several labels."""
    return f"{OF_LABEL}{label}"


def metric_range(name: str) -> tuple[float, float]:
    """Smallest and largest value that a metric can have."""
    return LOWEST.get(name, 0.0), math.inf if name in LOWER_IS_BETTER else 1.0


def metric_title(name: str) -> str:
    """What tables call a metric."""
    return TITLES.get(name) or (f"AUROC {name.removeprefix(OF_LABEL)}" if name.startswith(OF_LABEL) else name)


def metric_problem(name: str, kind: str, labels: Sequence[str] = ()) -> str | None:
    """Why tables cannot print this metric, as the end of a sentence; None where they can. ``labels`` are those of the study."""
    known = [*PRINTED[kind], *(label_metric(label) for label in labels)]
    if name in known:
        return None
    if name in UNPRINTED:
        return f"{name!r} has no interval and stands in metrics.csv only; tables print {', '.join(known)}"
    if any(name in others for others in PRINTED.values()):
        return f"{name!r} does not judge {JUDGES[kind]}; known are {', '.join(known)}"
    return f"there is no {name!r}; {suggestion(name, known, ELSEWHERE)}"

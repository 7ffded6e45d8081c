"""Names of metrics: those that tables print, with intervals and comparisons, and what people call them elsewhere."""

from panther.errors import suggestion

PRINTED = {  # by whether survival is predicted
    True: ("c_index", "c_index_uno"),
    False: ("balanced_accuracy", "weighted_f1", "quadratic_kappa", "auroc"),
}
TITLES = {
    "c_index": "c-index",
    "c_index_uno": "Uno's c-index",
    "balanced_accuracy": "Bal. acc.",
    "weighted_f1": "F1",
    "quadratic_kappa": "Cohen's kappa",
    "auroc": "AUROC",
}
ELSEWHERE = {  # the same thing in other packages' words
    **dict.fromkeys(("auc", "roc_auc", "roc-auc", "rocauc", "macro_auc"), "auroc"),
    **dict.fromkeys(("bacc", "bal_acc", "balanced-accuracy", "balanced_acc", "macro_recall"), "balanced_accuracy"),
    **dict.fromkeys(("f1", "f1_score", "f1-score", "f1_weighted", "weighted-f1"), "weighted_f1"),
    **dict.fromkeys(("kappa", "qwk", "cohen_kappa", "cohens_kappa", "quadratic_weighted_kappa"), "quadratic_kappa"),
    **dict.fromkeys(("cindex", "c-index", "ci", "concordance", "concordance_index", "harrell"), "c_index"),
    **dict.fromkeys(("uno", "uno_c_index", "c_index_ipcw", "ipcw"), "c_index_uno"),
}
UNPRINTED = ("accuracy", "time_auc", "integrated_brier")  # in metrics.csv, without an interval


def metric_problem(name: str, survival: bool) -> str | None:
    """Why tables cannot print this metric, as the end of a sentence; None where they can."""
    known = PRINTED[survival]
    if name in known:
        return None
    if name in UNPRINTED:
        return f"{name!r} has no interval and stands in metrics.csv only; tables print {', '.join(known)}"
    if name in PRINTED[not survival]:
        what = "survival" if survival else "classes"
        return f"{name!r} does not judge {what}; known are {', '.join(known)}"
    return f"there is no {name!r}; {suggestion(name, known, ELSEWHERE)}"

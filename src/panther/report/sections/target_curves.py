"""What lies behind the numbers where values or several labels are predicted: predicted against observed, a ROC curve for each label."""

import numpy as np
import pandas as pd

from panther.charts.results import observed_and_predicted, roc
from panther.evaluation.value_metrics import pearson
from panther.report.data import Run, where_tested
from panther.report.html import Html, choice, join, number, paragraph, plot, tag
from panther.report.outcomes import short


def predictions_of(run: Run, name: str, part: str) -> pd.DataFrame:
    """Rows of predictions.csv of one method and test."""
    return run.predictions[(run.predictions["row"] == name) & (run.predictions["part"] == part)]


def value_curves(run: Run, order: list[str]) -> Html | None:
    """Predicted against observed, one picture for each method and test."""
    figures: dict[str, Html] = {}
    for part in run.parts:
        for name in order:
            found = predictions_of(run, name, part)
            if not found.empty:
                figures[f"{where_tested(part)}: {name}"] = _scatter(run, found, f"observed-{len(figures)}")
    if not figures:
        return None
    return join(
        tag("h3", "Predicted against observed"),
        paragraph(
            "Every point is a test sample, its colour the fold that tested it; a right prediction lies on the dotted line. "
            "Points flatter than the line are usual: a careful model stays near the mean where it does not know."
        ),
        choice("observed", "Show", figures),
    )


def _scatter(run: Run, found: pd.DataFrame, key: str) -> Html:
    observed, predicted = (found[column].to_numpy(float) for column in ("value", "predicted"))
    folds = [f"fold {fold + 1}" for fold in found["fold"]]
    chart = observed_and_predicted(observed, predicted, folds, list(found["sample"]), str(run.study.task.value))
    r = float(pearson(observed, predicted, np.ones(len(found))))
    error = short(float(np.abs(observed - predicted).mean()))
    said = f"{len(found):,} predictions, all folds together: Pearson's r {number(r)}, mean absolute error {error}; tables have means over folds."
    return plot(key, chart, said, said, widest=760)


def label_curves(run: Run, order: list[str]) -> Html | None:
    """ROC curves, those of all labels in one picture for each method and test."""
    figures: dict[str, Html] = {}
    for part in run.parts:
        for name in order:
            found = predictions_of(run, name, part)
            curves = {label: _roc(found, label) for label in run.study.task.labels or ()}
            known = {label: curve for label, curve in curves.items() if curve is not None}
            if known:
                said = f"ROC of each label on {where_tested(part)} by {name}, all folds together; tables have the mean over folds."
                figures[f"{where_tested(part)}: {name}"] = plot(
                    f"roc-{len(figures)}", roc(known), said, said, widest=760
                )
    if not figures:
        return None
    return join(tag("h3", "Each label at every threshold"), choice("roc", "Show", figures))


def _roc(found: pd.DataFrame, label: str) -> tuple[np.ndarray, np.ndarray] | None:
    from sklearn.metrics import roc_curve

    known = found.dropna(subset=f"label_{label}")
    truth = known[f"label_{label}"].to_numpy(float) == 1
    if truth.all() or not truth.any():
        return None
    false, true, _ = roc_curve(truth, known[f"probability_{label}"].to_numpy())
    return false, true

"""Tab: what lies behind the numbers: survival of risk groups, confusion matrices, learning curves."""

from collections.abc import Callable

import numpy as np
import pandas as pd

from panther.charts.results import confusion, learning_curves, observed_and_predicted, roc
from panther.charts.survival import survival_curves
from panther.evaluation import metrics
from panther.evaluation.metrics import LOWER_IS_BETTER, pearson
from panther.evaluation.survival_metrics import LogRank, kaplan_meier, log_rank, risk_groups
from panther.report.data import Run, where_tested
from panther.report.html import Html, choice, join, number, p_value, paragraph, plot, tag, words
from panther.report.material import Material
from panther.report.outcomes import short

MOST_CURVES = 6  # lines that can be told apart
RISK = ("low risk", "high risk")
LEVEL = 0.05  # of significance


def curves(material: Material) -> Html | None:
    """By kind of task, the best method first."""
    run = material.run
    judged = run.judged("test", run.metric).dropna(subset="mean")
    means = dict(zip(judged["row"], judged["mean"], strict=True))
    sign = 1 if run.metric in LOWER_IS_BETTER else -1
    order = sorted(
        run.rows, key=lambda name: sign * means.get(name, -sign * np.inf)
    )  # of equal ones the first stays first
    parts = [join(BEHIND[run.kind](run, order)), _learning(run, order)]
    return join(tag("h2", "Curves"), parts) if any(parts) else None


def _behind_classes(run: Run, order: list[str]) -> Html:
    matrices: dict[str, Html] = {}
    receivers: dict[str, Html] = {}
    for part in run.parts:
        for name in order:
            found = predictions_of(run, name, part)
            if not found.empty:
                key = f"{len(matrices)}"
                matrices[f"{where_tested(part)}: {name}"] = _confusion(run, found, key)
        if len(run.classes or ()) == 2:
            curves = {name: _roc(run, predictions_of(run, name, part)) for name in order[:MOST_CURVES]}
            known = {name: curve for name, curve in curves.items() if curve is not None}
            most = (
                f" (the best and the next {MOST_CURVES - 1} of {len(order)} methods)"
                if len(order) > MOST_CURVES
                else ""
            )
            text = (
                f"ROC on {where_tested(part)} of the class {(run.classes or [])[1]}, all folds together{most}; "
                "AUC is the area under these curves, while tables have the mean over folds."
            )
            receivers[where_tested(part)] = plot(f"roc-{part}", roc(known), text, widest=760)
    return join(
        tag("h3", "Which classes are confused"),
        paragraph(
            "Rows are the truth, columns the prediction, all test folds together. Off the diagonal are the errors."
        ),
        choice("confusion", "Show", matrices),
        join(tag("h3", "At every threshold"), choice("roc", "Show", receivers)) if receivers else None,
    )


def confusion_matrix(predictions: pd.DataFrame, names: list[str]) -> np.ndarray:
    """Truth by prediction, (K, K), of rows of predictions.csv; the class of the highest probability is predicted."""
    predicted = predictions[[f"probability_{name}" for name in names]].to_numpy().argmax(1)
    truth = predictions["label"].map({name: k for k, name in enumerate(names)}).to_numpy()
    return metrics.confusion(truth, predicted, len(names))


def _confusion(run: Run, predictions: pd.DataFrame, key: str) -> Html:
    names = run.classes or []
    matrix = confusion_matrix(predictions, names)
    right = int(np.trace(matrix))
    alt = f"{right} of {int(matrix.sum())} predictions are right. " + "; ".join(
        f"{name}: " + ", ".join(f"{n} as {other}" for other, n in zip(names, row, strict=True))
        for name, row in zip(names, matrix, strict=True)
    )
    text = f"{right} of {int(matrix.sum())} predictions are right."
    return plot(f"confusion-{key}", confusion(matrix, names), alt, text, widest=300 + 120 * len(names))


def _roc(run: Run, predictions: pd.DataFrame) -> tuple[np.ndarray, np.ndarray] | None:
    from sklearn.metrics import roc_curve

    positive = (run.classes or [])[1]
    truth = (predictions["label"] == positive).to_numpy()
    if truth.all() or not truth.any():
        return None
    false, true, _ = roc_curve(truth, predictions[f"probability_{positive}"].to_numpy())
    return false, true


def _behind_survival(run: Run, order: list[str]) -> Html | None:
    figures: dict[str, Html] = {}
    for part in run.parts:
        for name in order:
            found = _grouped(run, name, part)
            if found is not None and found["group"].nunique() == 2:
                figures[f"{where_tested(part)}: {name}"] = _risk_curves(run, found, f"risk-{len(figures)}")
    if not figures:
        return None
    return join(
        tag("h3", "Do patients called high-risk fare worse?"),
        paragraph(
            "Patients are divided at the median risk of the training patients of their fold, so the cut has not seen them; then "
            "all test folds are drawn together. An external cohort is tested by the model of every fold and is drawn once for "
            "each; it gets no p-value."
        ),
        choice("risk", "Show", figures),
    )


def _grouped(run: Run, name: str, part: str) -> pd.DataFrame | None:
    """Test predictions with their risk group; None where the cache with the training risks is gone."""
    found = []
    for _, entry in run.trained[run.trained["row"] == name].iterrows():
        loaded = run.predicted(entry["predictions"])
        if loaded is None:
            return None
        mine = predictions_of(run, name, part)
        mine = mine[(mine["fold"] == entry["fold"]) & (mine["seed"] == entry["seed"])]
        found.append(mine.assign(group=risk_groups(mine["risk"].to_numpy(), loaded[1]["train"]["risk"])))
    return pd.concat(found) if found else None


def _risk_curves(run: Run, predictions: pd.DataFrame, key: str) -> Html:
    curves = {}
    for group, name in enumerate(RISK):
        mine = predictions[predictions["group"] == group]
        curves[f"{name} (n = {len(mine)}, {int(mine['event'].sum())} events)"] = kaplan_meier(
            mine["time"].to_numpy(float), mine["event"].to_numpy(bool)
        )
    text = "Kaplan-Meier estimate of the two risk groups with 95 % bands"
    test = log_rank(
        predictions["time"].to_numpy(float), predictions["event"].to_numpy(bool), predictions["group"].to_numpy()
    )
    fared = _fared(test, once=bool(predictions["sample"].is_unique))
    chart = survival_curves(curves, run.time_unit, run.endpoint)
    return plot(key, chart, f"{text}: {', '.join(curves)}. {fared}", f"{text}. {fared}")


def _fared(test: LogRank, *, once: bool) -> str:
    """Which group fared worse: a p-value has no direction."""
    events, expected = float(test.observed[1]), float(test.expected[1])
    if np.isclose(events, expected):
        way = "Those called high-risk fared like the others"
    elif events > expected:
        way = "Those called high-risk fared worse, as predicted"
    else:
        way = "Those called high-risk fared better, which is the opposite of the prediction"
    if not once:
        return f"{way}; no test, because patients are drawn once for each fold that tests them."
    shown = "" if test.p_value < LEVEL else ", which is not shown to be more than chance"
    p = f"log-rank test p = {p_value(test.p_value)}{shown}".replace("= <", "<")
    return f"{way} ({events:.0f} events, {expected:.1f} expected if both groups were alike); {p}."


def _learning(run: Run, order: list[str]) -> Html | None:
    figures: dict[str, Html] = {}
    for name in order:
        entries = run.trained[run.trained["row"] == name]
        first = entries[entries["seed"] == entries["seed"].min()].sort_values("fold")
        loaded = [run.predicted(file) for file in first["predictions"]]
        histories = [found[0]["history"] for found in loaded if found is not None and found[0]["history"]]
        if histories:
            text = f"Loss of {name} over epochs, one line per fold; dashed lines are validation."
            figures[name] = plot(f"learning-{len(figures)}", learning_curves(histories), text)
    if not figures:
        return None
    body = choice("learning", "Show", figures)
    text = (
        "A loss that has hardly fallen asks for more `epochs` or a larger `learning_rate` (in the study file `training`, of networks "
        "`mil_training`); that it lies flat at the end says little, because the learning rate ends at 0. A validation loss that rises asks for "
        "fewer epochs."
    )
    return join(tag("h3", "Did training settle?"), paragraph(words(text)), body)


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


def _scatter(run: Run, predictions: pd.DataFrame, key: str) -> Html:
    observed, predicted = (predictions[column].to_numpy(float) for column in ("value", "predicted"))
    folds = [f"fold {fold + 1}" for fold in predictions["fold"]]
    chart = observed_and_predicted(observed, predicted, folds, list(predictions["sample"]), str(run.study.task.value))
    r = float(pearson(observed, predicted, np.ones(len(predictions))))
    error = short(float(np.abs(observed - predicted).mean()))
    text = (
        f"{len(predictions):,} predictions, all folds together: Pearson's r {number(r)}, "
        f"mean absolute error {error}; tables have means over folds."
    )
    return plot(key, chart, text, text, widest=760)


def label_curves(run: Run, order: list[str]) -> Html | None:
    """ROC curves, those of all labels in one picture for each method and test."""
    figures: dict[str, Html] = {}
    for part in run.parts:
        for name in order:
            found = predictions_of(run, name, part)
            curves = {label: _roc_of_label(found, label) for label in run.study.task.labels or ()}
            known = {label: curve for label, curve in curves.items() if curve is not None}
            if known:
                text = f"ROC of each label on {where_tested(part)} by {name}, all folds together; tables have the mean over folds."
                figures[f"{where_tested(part)}: {name}"] = plot(
                    f"roc-{len(figures)}", roc(known), text, text, widest=760
                )
    if not figures:
        return None
    return join(tag("h3", "Each label at every threshold"), choice("roc", "Show", figures))


def _roc_of_label(predictions: pd.DataFrame, label: str) -> tuple[np.ndarray, np.ndarray] | None:
    from sklearn.metrics import roc_curve

    known = predictions.dropna(subset=f"label_{label}")
    truth = known[f"label_{label}"].to_numpy(float) == 1
    if truth.all() or not truth.any():
        return None
    false, true, _ = roc_curve(truth, known[f"probability_{label}"].to_numpy())
    return false, true


BEHIND: dict[str, Callable[[Run, list[str]], Html | None]] = {
    "classification": _behind_classes,
    "survival": _behind_survival,
    "regression": value_curves,
    "labels": label_curves,
}

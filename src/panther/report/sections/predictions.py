"""Tabs of the predictions: risk groups, confusion, ROC and learning curves; calibration and prediction sets."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from panther.charts import results as charts
from panther.charts.results import survival_curves
from panther.evaluation import metrics
from panther.evaluation.metrics import LOWER_IS_BETTER, pearson
from panther.evaluation.survival_metrics import LogRank, kaplan_meier, log_rank, risk_groups
from panther.report.data import Run, short, where_tested
from panther.report.figures import Figure, limits, number, p_value
from panther.report.material import Material

MOST_CURVES = 6  # lines that can be distinguished
RISK = ("low risk", "high risk")
LEVEL = 0.05  # of significance
PREDICTED = "predicted class"
SCORES = ("ece", "brier", "log_loss")
Figures = dict[str, Figure]


def curves(material: Material) -> dict[str, Any] | None:
    """Figures of the predictions by kind of task, the best method first."""
    run = material.run
    judged = run.judged("test", run.metric).dropna(subset="mean")
    ranked = judged.sort_values("mean", ascending=run.metric in LOWER_IS_BETTER, kind="stable")["row"]
    order = list(dict.fromkeys([*ranked, *run.rows]))
    key, draw = BY_KIND[run.kind]
    figures: Figures = {}
    for part in run.parts:
        for name in order:
            table = run.predictions_of(name, part)
            if not table.empty and (figure := draw(run, table, f"{key}-{len(figures)}")):
                figures[run.on(part, name)] = figure
    context = {"figures": figures, "receivers": _receivers(run, order), "learning": _learning(run, order)}
    return context if any(context.values()) else None


def confusion_matrix(predictions: pd.DataFrame, names: list[str]) -> np.ndarray:
    """Truth by prediction, (K, K), of rows of predictions.csv; the class of the highest probability is predicted."""
    predicted = predictions[[f"probability_{name}" for name in names]].to_numpy().argmax(1)
    truth = predictions["label"].map({name: k for k, name in enumerate(names)}).to_numpy()
    return metrics.confusion(truth, predicted, len(names))


def _confusion(run: Run, predictions: pd.DataFrame, key: str) -> Figure:
    names = run.classes or []
    matrix = confusion_matrix(predictions, names)
    rows = (", ".join(f"{n} as {other}" for other, n in zip(names, row, strict=True)) for row in matrix)
    numbers = "; ".join(f"{name}: {row}" for name, row in zip(names, rows, strict=True))
    text = f"{int(np.trace(matrix))} of {int(matrix.sum())} correct."
    return Figure(key, charts.confusion(matrix, names), text, numbers, 300 + 120 * len(names))


def _roc(outputs: dict[str, tuple[pd.Series, pd.Series]], key: str, text: str) -> Figure | None:
    """ROC curves of outputs (truth, probability) by name, except those with one value of the truth only."""
    from sklearn.metrics import roc_curve

    curves = {name: roc_curve(*output)[:2] for name, output in outputs.items() if output[0].nunique() == 2}
    text = f"ROC of {text}."
    return Figure(key, charts.roc(curves), text, widest=760) if curves else None


def _receivers(run: Run, order: list[str]) -> Figures:
    """ROC curves of all methods, where there are two classes."""
    figures: Figures = {}
    if run.kind != "classification" or len(run.classes or ()) != 2:
        return figures
    positive = (run.classes or [])[1]
    most = f" (the best {MOST_CURVES} of {len(order)} methods)" if len(order) > MOST_CURVES else ""
    for part in run.parts:
        tables = {name: run.predictions_of(name, part) for name in order[:MOST_CURVES]}
        outputs = {name: (t["label"] == positive, t[f"probability_{positive}"]) for name, t in tables.items()}
        text = run.on(part, f"{positive}{most}, folds pooled")
        if figure := _roc(outputs, f"roc-{part}", text):
            figures[where_tested(part)] = figure
    return figures


def _label_receivers(run: Run, predictions: pd.DataFrame, key: str) -> Figure | None:
    """ROC curves of all labels."""
    tables = {label: predictions.dropna(subset=f"label_{label}") for label in run.study.task.labels or ()}
    outputs = {label: (t[f"label_{label}"].astype(float), t[f"probability_{label}"]) for label, t in tables.items()}
    return _roc(outputs, key, "each label, folds pooled")


def _scatter(run: Run, predictions: pd.DataFrame, key: str) -> Figure:
    observed, predicted = (predictions[column].to_numpy(float) for column in ("value", "predicted"))
    folds = [f"fold {fold + 1}" for fold in predictions["fold"]]
    chart = charts.observed_and_predicted(
        observed, predicted, folds, list(predictions["sample"]), str(run.study.task.value)
    )
    r = float(pearson(observed, predicted, np.ones(len(predictions))))
    error = short(float(np.abs(observed - predicted).mean()))
    text = f"{len(predictions):,} predictions, folds pooled: Pearson's r {number(r)}, mean absolute error {error}."
    return Figure(key, chart, text, widest=760)


def _risk_groups(run: Run, predictions: pd.DataFrame, key: str) -> Figure | None:
    """Survival of the risk groups; None where the cache with the training risks is gone, or all are in one group."""
    name, groups = predictions["row"].iloc[0], pd.Series(-1, index=predictions.index)
    for _, entry in run.trained[run.trained["row"] == name].iterrows():
        loaded = run.predicted(entry["predictions"])
        if loaded is None:
            return None
        tested = (predictions["fold"] == entry["fold"]) & (predictions["seed"] == entry["seed"])
        groups[tested] = risk_groups(predictions.loc[tested, "risk"].to_numpy(), loaded[1]["train"]["risk"])
    if groups.nunique() != 2:
        return None
    time, event = predictions["time"].to_numpy(float), predictions["event"].to_numpy(bool)
    curves = {}
    for group, title in enumerate(RISK):
        member = groups.to_numpy() == group
        label = f"{title} (n = {member.sum()}, {int(event[member].sum())} events)"
        curves[label] = kaplan_meier(time[member], event[member])
    verdict = risk_verdict(log_rank(time, event, groups.to_numpy()), once=bool(predictions["sample"].is_unique))
    return Figure(key, survival_curves(curves, run.time_unit, run.endpoint), verdict, ", ".join(curves))


def risk_verdict(test: LogRank, *, once: bool) -> str:
    """Which risk group had worse survival, and the p-value, which has no direction; no test unless each patient is tested ``once``."""
    events, expected = float(test.observed[1]), float(test.expected[1])
    if np.isclose(events, expected):
        direction = "The high-risk group had the same survival"
    elif events > expected:
        direction = "The high-risk group had worse survival, as predicted"
    else:
        direction = "The high-risk group had better survival, contrary to the prediction"
    if not once:
        return f"{direction}; not tested, because patients count once for each fold that tests them."
    uncertain = "" if test.p_value < LEVEL else ", not significant"
    p = f"log-rank p = {p_value(test.p_value)}{uncertain}".replace("= <", "<")
    return f"{direction} ({events:.0f} events, {expected:.1f} expected under equal survival); {p}."


BY_KIND: dict[str, tuple[str, Callable[[Run, pd.DataFrame, str], Figure | None]]] = {
    "classification": ("confusion", _confusion),
    "survival": ("risk", _risk_groups),
    "regression": ("observed", _scatter),
    "labels": ("roc", _label_receivers),
}


def _learning(run: Run, order: list[str]) -> Figures:
    figures: Figures = {}
    for name in order:
        entries = run.trained[run.trained["row"] == name]
        first = entries[entries["seed"] == entries["seed"].min()].sort_values("fold")
        loaded = [run.predicted(file) for file in first["predictions"]]
        histories = [settings["history"] for settings, _ in filter(None, loaded) if settings["history"]]
        if histories:
            text = f"Loss of {name}."
            figures[name] = Figure(f"learning-{len(figures)}", charts.learning_curves(histories), text)
    return figures


def uncertainty(material: Material) -> dict[str, Any] | None:
    """Calibration and prediction sets, as far as the study has them."""
    context = {"calibration": _calibration(material.run), "sets": _prediction_sets(material.run)}
    return context if any(context.values()) else None


def _rows_of(run: Run, table: pd.DataFrame, part: str) -> list[str]:
    """Methods that have rows in a table, the best first."""
    names = dict.fromkeys([*run.best(part)["row"], *run.rows])
    return [name for name in names if name in set(table["row"])]


def _calibration(run: Run) -> dict[str, Any] | None:
    table = run.sureness.get("calibration")
    if table is None:
        return None
    figures: Figures = {}
    scores: dict[str, list[dict[str, Any]]] = {part: [] for part in run.parts}
    for part in run.parts:
        for position, name in enumerate(_rows_of(run, table, part)):
            figures[run.on(part, name)] = _reliability(run, part, name, f"reliability-{part}-{position}")
            rows = table[(table["row"] == name) & (table["part"] == part)]
            for kind, group in rows.groupby("probabilities", sort=False):
                by_metric = {row["metric"]: row for _, row in group.iterrows()}
                cells = {metric: _interval(by_metric[metric], "value") for metric in SCORES}
                chance = by_metric["ece"][["by_chance", "by_chance_high", "temperature"]]
                scores[part].append({"name": f"{name}, {kind}", **cells, **chance})
    return {"figures": figures, "scores": scores, "source": next(filter(None, table["calibrated_on"]), "")}


def _reliability(run: Run, part: str, name: str, key: str) -> Figure:
    table = run.sureness["reliability"]
    table = table[(table["row"] == name) & (table["part"] == part)]
    classes = [c for c in dict.fromkeys(table["class"]) if c != PREDICTED]
    shown = classes[0] if len(classes) == 1 else PREDICTED
    columns = ["predicted", "observed", "ci_low", "ci_high"]
    curves = {
        str(kind): charts.Reliability(*bins[columns].to_numpy(float).T)
        for kind, bins in table[table["class"] == shown].groupby("probabilities", sort=False)
    }
    last = list(curves.values())[-1]
    pairs = zip(last.predicted, last.observed, strict=True)
    numbers = "; ".join(f"predicted {predicted:.2f}, observed {observed:.2f}" for predicted, observed in pairs)
    title = run.on(part, f"Reliability of {name}, {shown}, folds pooled")
    label = "the predicted class" if shown == PREDICTED else shown
    return Figure(key, charts.reliability_curves(curves, label), title, numbers, 700)


def _prediction_sets(run: Run) -> dict[str, Any] | None:
    table = run.sureness.get("prediction_sets")
    if table is None:
        return None
    table = table.assign(coverage_text=[_interval(row, "coverage") for _, row in table.iterrows()])
    groups = table[table["by"] != "all"]
    # of the best method on each test set: the class and the site of the lowest coverage
    first = {part: next(iter(_rows_of(run, groups[groups["part"] == part], part)), "") for part in run.parts}
    best = groups[groups["row"] == groups["part"].map(first)].dropna(subset="coverage")
    coverage = best.groupby(["part", "by"], sort=False)["coverage"]
    worst = best.loc[coverage.idxmin()[coverage.size() > 1]].to_dict("records")
    return {
        "level": f"{100 * table['level'].iloc[0]:g} %",
        "source": table["calibrated_on"].iloc[0],
        "rows": table[table["by"] == "all"].to_dict("records"),
        "groups": groups.to_dict("records"),
        "worst": worst,
    }


def _interval(row: pd.Series, name: str) -> str:
    interval = "" if pd.isna(row["ci_low"]) else f" {limits(row['ci_low'], row['ci_high'])}"
    return f"{number(row[name])}{'' if pd.isna(row[name]) else interval}"

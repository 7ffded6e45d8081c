"""Tabs of the predictions behind the scores: risk groups, confusion, learning curves; calibration and prediction sets."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from panther.charts.results import (
    Reliability,
    confusion,
    learning_curves,
    observed_and_predicted,
    reliability_curves,
    roc,
    survival_curves,
)
from panther.evaluation import metrics
from panther.evaluation.metrics import LOWER_IS_BETTER, pearson
from panther.evaluation.survival_metrics import LogRank, kaplan_meier, log_rank, risk_groups
from panther.report.data import Run, short, where_tested
from panther.report.figures import DASH, Figure, number, p_value
from panther.report.material import Material

MOST_CURVES = 6  # lines that can be told apart
RISK = ("low risk", "high risk")
LEVEL = 0.05  # of significance
PREDICTED = "predicted class"
SCORES = {"ece": "calibration error", "brier": "Brier score", "log_loss": "log loss"}
Figures = dict[str, Figure]


def curves(material: Material) -> dict[str, Any] | None:
    """By kind of task, the best method first."""
    run = material.run
    judged = run.judged("test", run.metric).dropna(subset="mean")
    means = dict(zip(judged["row"], judged["mean"], strict=True))
    sign = 1 if run.metric in LOWER_IS_BETTER else -1
    # of equal ones the first stays first
    order = sorted(run.rows, key=lambda name: sign * means.get(name, -sign * np.inf))
    key, draw = BY_KIND[run.kind]
    figures: Figures = {}
    for part in run.parts:
        for name in order:
            table = run.predictions_of(name, part)
            if not table.empty and (figure := draw(run, table, f"{key}-{len(figures)}")):
                figures[f"{where_tested(part)}: {name}"] = figure
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
    text = f"{int(np.trace(matrix))} of {int(matrix.sum())} predictions are correct."
    rows = (", ".join(f"{n} as {other}" for other, n in zip(names, row, strict=True)) for row in matrix)
    alt = f"{text} {'; '.join(f'{name}: {row}' for name, row in zip(names, rows, strict=True))}"
    return Figure(key, confusion(matrix, names), alt, text, 300 + 120 * len(names))


def _receiver(truth: pd.Series, probability: pd.Series) -> tuple[np.ndarray, np.ndarray] | None:
    """False and true positive rate; None where the truth has one value only."""
    from sklearn.metrics import roc_curve

    return None if truth.all() or not truth.any() else roc_curve(truth, probability)[:2]


def _receivers(run: Run, order: list[str]) -> Figures:
    """ROC curves of all methods, where there are two classes."""
    figures: Figures = {}
    if run.kind != "classification" or len(run.classes or ()) != 2:
        return figures
    positive = (run.classes or [])[1]
    for part in run.parts:
        tables = {name: run.predictions_of(name, part) for name in order[:MOST_CURVES]}
        curves = {n: _receiver(t["label"] == positive, t[f"probability_{positive}"]) for n, t in tables.items()}
        known = {name: curve for name, curve in curves.items() if curve}
        most = f" (the best {MOST_CURVES} of {len(order)} methods)" if len(order) > MOST_CURVES else ""
        text = f"ROC of {positive} on {where_tested(part)}, all folds pooled{most}; tables: mean AUROC over folds."
        figures[where_tested(part)] = Figure(f"roc-{part}", roc(known), text, widest=760)
    return figures  # fmt: skip


def _label_receivers(run: Run, predictions: pd.DataFrame, key: str) -> Figure | None:
    """ROC curves of all labels."""
    tables = {label: predictions.dropna(subset=f"label_{label}") for label in run.study.task.labels or ()}
    curves = {n: _receiver(t[f"label_{n}"].astype(float) == 1, t[f"probability_{n}"]) for n, t in tables.items()}
    known = {label: curve for label, curve in curves.items() if curve}
    text = "ROC of each label, all folds pooled; tables: mean AUROC over folds."
    return Figure(key, roc(known), text, widest=760) if known else None


def _scatter(run: Run, predictions: pd.DataFrame, key: str) -> Figure:
    observed, predicted = (predictions[column].to_numpy(float) for column in ("value", "predicted"))
    folds = [f"fold {fold + 1}" for fold in predictions["fold"]]
    chart = observed_and_predicted(observed, predicted, folds, list(predictions["sample"]), str(run.study.task.value))
    r = float(pearson(observed, predicted, np.ones(len(predictions))))
    error = short(float(np.abs(observed - predicted).mean()))
    text = f"{len(predictions):,} predictions, all folds pooled: Pearson's r {number(r)}, mean absolute error {error}; tables have means over folds."
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
    text = "Kaplan-Meier estimate of the two risk groups with 95 % bands and numbers at risk"
    verdict = risk_verdict(log_rank(time, event, groups.to_numpy()), once=bool(predictions["sample"].is_unique))
    chart = survival_curves(curves, run.time_unit, run.endpoint)
    return Figure(key, chart, f"{text}: {', '.join(curves)}. {verdict}", f"{text}. {verdict}")


def risk_verdict(test: LogRank, *, once: bool) -> str:
    """Which group had worse survival, as a p-value has no direction; no test unless each patient is tested ``once``."""
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
        histories = [one[0]["history"] for one in loaded if one is not None and one[0]["history"]]
        if histories:
            text = f"Loss of {name} over epochs, one line per fold; dashed: validation."
            figures[name] = Figure(f"learning-{len(figures)}", learning_curves(histories), text)
    return figures


def how_sure(material: Material) -> dict[str, Any] | None:
    """Calibration, then prediction sets, as far as the study has them."""
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
    scores: dict[str, list[dict[str, Any]]] = {}
    for part in run.parts:
        scores[part] = []
        for position, name in enumerate(_rows_of(run, table, part)):
            figures[f"{where_tested(part)}: {name}"] = _reliability(run, part, name, f"reliability-{part}-{position}")
            rows = table[(table["row"] == name) & (table["part"] == part)]
            for kind, of in rows.groupby("probabilities", sort=False):
                by = {r["metric"]: r for _, r in of.iterrows()}
                cells = {metric: _interval(by[metric], "value") for metric in SCORES}
                scores[part].append(
                    {"name": f"{name}, {kind}", **cells, **by["ece"][["by_chance", "by_chance_high", "temperature"]]}
                )
    return {"figures": figures, "scores": scores, "source": next((text for text in table["calibrated_on"] if text), "")}  # fmt: skip


def _reliability(run: Run, part: str, name: str, key: str) -> Figure:
    table = run.sureness["reliability"]
    table = table[(table["row"] == name) & (table["part"] == part)]
    classes = [c for c in dict.fromkeys(table["class"]) if c != PREDICTED]
    shown = classes[0] if len(classes) == 1 else PREDICTED
    table = table[table["class"] == shown]
    curves = {
        str(kind): Reliability(
            *(of[column].to_numpy(float) for column in ("predicted", "observed", "ci_low", "ci_high"))
        )
        for kind, of in table.groupby("probabilities", sort=False)
    }
    title = f"Reliability of {name} on {where_tested(part)}, {shown}, all folds pooled"
    last = list(curves.values())[-1]
    bins = "; ".join(f"predicted {p:.2f}, observed {o:.2f}" for p, o in zip(last.predicted, last.observed, strict=True))
    label = "the predicted class" if shown == PREDICTED else shown
    return Figure(key, reliability_curves(curves, label), f"{title}: {bins}.", f"{title}.", 700)


def _prediction_sets(run: Run) -> dict[str, Any] | None:
    table = run.sureness.get("prediction_sets")
    if table is None:
        return None
    table = table.assign(coverage_text=[_interval(row, "coverage") for _, row in table.iterrows()])
    groups = table[table["by"] != "all"]
    # of the best method on each test: the class and the site of the lowest coverage
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
    limits = "" if pd.isna(row["ci_low"]) else f" [{number(row['ci_low'])}, {number(row['ci_high'])}]"
    return DASH if pd.isna(row[name]) else f"{number(row[name])}{limits}"

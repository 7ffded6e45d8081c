"""Tabs of the scores of each method: summary, results, and the shuffle test."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from panther.charts.chart import Chart
from panther.charts.results import Estimate, forest
from panther.charts.style import ORANGE
from panther.cohort.covariates import COVARIATES
from panther.errors import listed
from panther.evaluation.intervals import CAPTION, holm
from panther.evaluation.metrics import LOWER_IS_BETTER, OF_LABEL
from panther.evaluation.verdicts import about_perfect, about_selection, best_rows, winners, worst_groups
from panther.report.checks import checks
from panther.report.data import Run, cohorts_of, metric_name, observed, readable, short, where_tested
from panther.report.figures import DASH, MINUS, Figure, estimates, limits, number, signed
from panther.report.material import Material
from panther.report.sections.cohort import count_tiles
from panther.storage.tables import read_parquet
from panther.study.tables import SHUFFLE, below_chance, row_names, shuffle_sentences, varying_factors

LEVEL = 0.05  # of significance
MEANING = {
    "pearson": "Pearson's r: linear correlation of predicted and observed values; 0 is guessing, 1 is perfect.",
    "spearman": "Spearman's rho: correlation of the ranks of predicted and observed values; 0 is guessing, 1 is perfect.",
    "r2": "R²: explained share of the variance of the test samples; 0 is the prediction of their mean, negative values are worse.",
    "mae": "Mean absolute error: in the units of the table; less is better.",
    "macro_auroc": "Mean AUROC: mean over the labels of the AUROC of each, over samples whose label is known; 0.5 is guessing, 1 is perfect.",
    "c_index": "c-index: share of pairs of patients whose order in time is predicted correctly; 0.5 is guessing, 1 is perfect.",
    "c_index_uno": "Uno's c-index: the same with pairs weighted by inverse probability of censoring (from the training patients, up to their last "
    "event), so that it does not depend on when patients were censored; 0.5 is guessing, 1 is perfect.",
    "balanced_accuracy": "Balanced accuracy: mean recall over the classes of a test fold; guessing gives one over their number, 1 is perfect.",
    "weighted_f1": "Weighted F1: harmonic mean of precision and recall, weighted by class size; 1 is perfect.",
    "quadratic_kappa": "Quadratic-weighted kappa: agreement beyond chance, distant classes weighted more; 0 is guessing, 1 is perfect.",
    "auroc": "AUROC: probability that of two samples of different classes the right one scores higher; 0.5 is guessing, 1 is perfect.",
}


def summary(material: Material) -> dict[str, Any]:
    """Question, answer, checks, and the commands that would add tabs."""
    run, mixtures = material.run, material.mixtures
    groups = cohorts_of(run)
    values = observed(run) if run.kind == "regression" else np.empty(0)
    return {
        "tiles": count_tiles(run),
        "span": [short(value) for value in np.quantile(values, [0, 1, 0.5])] if len(values) else None,
        "patients": run.cohort.loc[groups.pop("study"), "patient"].nunique(),
        "external": {name: len(ids) for name, ids in groups.items()},
        "answers": [_answer(run, part) for part in run.parts if not run.best(part).empty],
        "references": [row for _, best in run.best().iterrows() if (row := _against_reference(run, best))],
        "meaning": MEANING.get(run.metric, ""),
        "forest": forest_of(run, run.parts[0], run.metric, "summary"),
        "checks": checks(material),
        "features": next(iter(run.study.features.values()), "FEATURES"),  # a study of vectors has none
        "prototypes": f"{run.folder.name}/cache/{mixtures.file}" if mixtures else "protos.safetensors",
    }


def _answer(run: Run, part: str) -> dict[str, Any]:
    """Best result on one test set."""
    best = run.best(part)
    first = best.iloc[0]
    interval = about_selection(first).replace(" -", f" {MINUS}")
    if not interval and len(best) == 1 and pd.notna(first["ci_low"]):
        interval = f"95 % interval {number(first['ci_low'])} to {number(first['ci_high'])}"
    return {
        "part": part,
        "rows": None if pd.isna(first["of_rows"]) else int(first["of_rows"]),
        "mean": first["mean"],
        "interval": interval,
        "by": winners(list(best["row"])),
        "notes": [note for note in dict.fromkeys(about_perfect(row) for _, row in best.iterrows()) if note],
    }


def _against_reference(run: Run, best: pd.Series) -> dict[str, Any] | None:
    """Comparison of the best row with the reference, Holm-corrected over all rows that it was selected from."""
    if run.comparisons.empty:
        return None
    c = run.comparisons
    family = c[(c["part"] == "test") & (c["metric"] == run.metric) & (c["subgroup"] == "")]
    family = family.assign(p_corrected=holm(family["p_value"].tolist()), tests=int(family["p_value"].notna().sum()))
    rows = family[family["row"] == best["row"]].to_dict("records")
    return rows[0] | {"significant": rows[0]["p_corrected"] < LEVEL} if rows else None


def results(material: Material) -> dict[str, Any]:
    """Forest plots, the table, comparisons, gains over covariates and groups of patients."""
    run = material.run
    shown = [m for m in run.study.shown if m in set(run.summary["metric"])]
    others = dict.fromkeys(run.summary.dropna(subset="ci_low")["metric"])
    extra = [m for m in others if m not in shown and (m in MEANING or m.startswith(OF_LABEL))]
    table = run.summary.assign(text=[interval_text(row) for _, row in run.summary.iterrows()])
    compared = run.comparisons
    if not compared.empty:
        compared = compared[compared["metric"].isin(shown) & (compared["subgroup"] == "")]
    return {
        "caption": CAPTION,
        "metrics": shown,
        "figures": {
            run.on(part, metric_name(metric)): forest_of(run, part, metric, "forest")
            for part in run.parts
            for metric in (*shown, *extra)
        },
        "meanings": [MEANING[m] for m in shown if m in MEANING and m != run.metric],
        "tables": [_table(run, part, shown) for part in run.parts],
        "compared": compared.to_dict("records"),
        "gains": _gains(run, shown),
        "groups": table[(table["subgroup"] != "") & table["metric"].isin(shown)].to_dict("records"),
        "worst": _worst(run),
        "everything": table[table["subgroup"] == ""].to_dict("records"),
    }


def forest_of(run: Run, part: str, metric: str, key: str) -> Figure:
    """Forest plot of one test set and metric."""
    return Figure(f"{key}-{part}-{metric}", *forest_chart(run, part, metric))


def forest_chart(run: Run, part: str, metric: str) -> tuple[Chart, str, str]:
    """Chart of one test set and metric, its title, and its numbers."""
    table, m = run.judged(part, metric), run.metrics
    folds = m[(m["part"] == part) & (m["metric"] == metric) & (m["subgroup"] == "")].groupby("row")["value"].agg(list)
    rows = [row._replace(folds=folds.get(row.name, ())) for row in estimates(table)]
    chart = forest(rows, metric_name(metric), run.chance(metric, part), list(best_rows(table)["row"]))
    numbers = "; ".join(f"{row.name} {number(row.mean)}" for row in rows)
    return chart, run.on(part, metric_name(metric)), numbers


def _table(run: Run, part: str, metrics: list[str]) -> dict[str, Any]:
    """Cells of each method, the best of each metric marked, and notes on perfect scores."""
    cells, notes = {}, []
    for metric in metrics:
        table = run.judged(part, metric)
        best = set(best_rows(table)["row"])
        for _, row in table.iterrows():
            cells[row["row"], metric] = interval_text(row), row["row"] in best
            if perfect := about_perfect(row):
                notes.append(f"{row['row']}, {metric_name(metric)} {number(row['mean'])}: {perfect}.")
    rows = {row: [cells.get((row, metric), (DASH, False)) for metric in metrics] for row in run.rows}
    return {"part": part, "rows": rows, "notes": notes}


def interval_text(row: pd.Series) -> str:
    """`0.671 (±0.041) [0.583, 0.764]`, the numbers of summary.csv, and the exact bound of a perfect score."""
    spread = "" if pd.isna(row["std"]) else f" (±{number(row['std'])})"
    interval = "" if pd.isna(row["ci_low"]) else f" {limits(row['ci_low'], row['ci_high'])}"
    exact = "" if pd.isna(row["exact_low"]) else f", exact bound {number(row['exact_low'])}"
    return f"{number(row['mean'])}{spread}{interval}{exact}"


def _worst(run: Run) -> list[list[str]]:
    """The worst group of each method and test set, by the metric of the summary."""
    s = run.summary[run.summary["metric"] == run.metric]
    return [
        [row, where_tested(part), sentence]
        for part in run.parts
        for row in run.rows
        for sentence in worst_groups(s[(s["row"] == row) & (s["part"] == part)])
    ]


def _gains(run: Run, metrics: list[str]) -> dict[str, Any] | None:
    """Embeddings with covariates, compared with the covariates alone."""
    if run.gains.empty:
        return None
    table = run.gains[run.gains["metric"].isin(metrics) & (run.gains["subgroup"] == "")]
    figures = {}
    for (part, metric), rows in _by_test(table):
        title = f"gain in {metric_name(metric)}"
        numbers = "; ".join(f"{r['row']} {signed(r['difference'])}" for _, r in rows.iterrows())
        chart = forest(estimates(rows, "difference"), title, 0.0, called="no gain")
        figure = Figure(f"gains-{part}-{metric}", chart, run.on(part, title), numbers)
        figures[run.on(part, metric_name(metric))] = figure
    alone = run.summary[run.summary["method"] == COVARIATES]
    return {
        "covariates": listed([covariate.column for covariate in run.study.covariates]),
        "baseline": table["baseline"].iloc[0],
        "below_chance": below_chance(alone, run.predictions, metrics),
        "figures": figures,
        "rows": table.to_dict("records"),
    }


def _by_test(table: pd.DataFrame) -> Iterator[tuple[Any, pd.DataFrame]]:
    """Rows of each test set and metric, with both names."""
    yield from table.groupby(["part", "metric"], sort=False)


def shuffle_test(material: Material) -> dict[str, Any] | None:
    """Scores on original and on shuffled tissue; None where the study has no shuffle test."""
    run = material.run
    file = run.folder / f"{SHUFFLE}.parquet"
    if not file.exists():
        return None
    table = read_parquet(file)
    table = table[table["metric"].isin(run.study.shown)]
    table = table.assign(row=[readable(name) for name in row_names(table, varying_factors(table))])
    errors = table["metric"].isin(LOWER_IS_BETTER).to_numpy()[:, None]  # they grow where a score falls
    loss, gain = table[["difference", "ci_low", "ci_high"]], table[["difference", "ci_high", "ci_low"]]
    table[["lost", "low", "high"]] = np.where(errors, -gain, loss)
    figures = {}
    for (part, metric), rows in _by_test(table):
        name = run.on(part, metric_name(metric))
        pairs = list(zip(rows["row"], rows["score"], rows["shuffled"], strict=True))
        scores = [Estimate(row, score, float("nan"), float("nan"), [shuffled]) for row, score, shuffled in pairs]
        numbers = "; ".join(f"{row} {number(score)} and {number(shuffled)}" for row, score, shuffled in pairs)
        rings = ("shuffled patches", ORANGE)
        chart = forest(scores, name, run.chance(metric, part), rings=rings, squares="original tissue")
        caption = f"{name}, original and shuffled"
        figures[name] = Figure(f"shuffle-{part}-{metric}", chart, caption, numbers)
    return {
        "times": int(table["shuffles"].max()),
        "sentences": [s.removeprefix("Shuffled tissue, ") for s in shuffle_sentences(table, run.study.shown)],
        "figures": figures,
        "rows": table.to_dict("records"),
    }

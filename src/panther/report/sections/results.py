"""Tab: how well each method did, with intervals, and whether differences are more than chance."""

import pandas as pd

from panther.charts.chart import Chart
from panther.charts.results import Estimate, forest
from panther.evaluation.intervals import CAPTION
from panther.evaluation.metrics import OF_LABEL
from panther.evaluation.verdicts import about_perfect, best_rows, worst_groups
from panther.report.data import Run, metric_name, where_tested
from panther.report.html import (
    DASH,
    Html,
    choice,
    details,
    join,
    listing,
    number,
    p_value,
    paragraph,
    plot,
    table,
    tag,
    words_of_list,
)
from panther.report.material import Material
from panther.report.sections.gains import gains, signed, signed_interval

MEANING = {
    "pearson": "Pearson's r says how closely predictions lie to a straight line over what was observed: 0 is guessing, 1 is perfect.",
    "spearman": "Spearman's rho is the same of their ranks: whether the order is right, whatever the scale.",
    "r2": "R² is the share of the variance of the test samples that is explained: 0 is what their mean would give, below it the mean is better.",
    "mae": "The mean absolute error is in the units of the table: less is better.",
    "macro_auroc": "The mean AUROC is the mean over the labels of the probability that of two samples, one with and one without the label, the "
    "one with it is given more: 0.5 is guessing, 1 is perfect. Each label counts where it is known.",
    "c_index": "The c-index is the share of pairs of patients whose order in time the model gets right: 0.5 is guessing, 1 is perfect.",
    "c_index_uno": "Uno's c-index is the same share with the pairs weighed so that it does not depend on when patients were censored (weights from "
    "the training patients, up to their last event): 0.5 is guessing, 1 is perfect.",
    "balanced_accuracy": "Balanced accuracy is the mean of the share that is recognised over the classes that a test fold has: guessing gives one "
    "over their number, 0.5 with two classes, 1 is perfect.",
    "weighted_f1": "F1 weighs missed and falsely named samples of every class; 1 is perfect.",
    "quadratic_kappa": "Quadratic-weighted kappa counts agreement beyond chance, with far misses counting more: 0 is guessing, 1 is perfect.",
    "auroc": "AUROC is the share of pairs of different classes in the right order: 0.5 is guessing, 1 is perfect.",
}


def results(material: Material) -> Html:
    """Forest plots first, then the table, then comparisons; all numbers on demand."""
    run = material.run
    shown = [m for m in run.study.shown if m in set(run.summary["metric"])]
    others = dict.fromkeys(run.summary.dropna(subset="ci_low")["metric"])
    extra = [m for m in others if m not in shown and (m in MEANING or m.startswith(OF_LABEL))]
    figures = {
        f"{metric_name(metric)}, {where_tested(part)}": forest_of(run, part, metric, "forest")
        for part in run.parts
        for metric in (*shown, *extra)
    }
    meanings = " ".join(MEANING[m] for m in shown if m in MEANING)
    return join(
        tag("h2", "Results"),
        paragraph(
            f"Each line is one method: the square is the mean over {run.over}, the rings are single folds{_of_each_seed(run)}",
            f", the line its 95 % interval. Lines that overlap much may be equally good; see the comparisons below. {CAPTION} "
            if run.study.bootstrap
            else ". There are no intervals, because no patients were resampled. ",
            meanings,
        ),
        choice("forest", "Show", figures),
        tag("h3", "All methods, all tests"),
        *(_table(run, part, shown) for part in run.parts),
        _comparisons(run, shown),
        gains(run, shown),
        _subgroups(run, shown),
        details("Every metric", _everything(run)),
    )


def forest_of(run: Run, part: str, metric: str, key: str) -> Html:
    """Forest plot of one test and metric."""
    chart, words = forest_chart(run, part, metric)
    caption = (
        f"{metric_name(metric)} on {where_tested(part)}. The best mean (several where they tie) is drawn in orange."
    )
    return plot(f"{key}-{part}-{metric}", chart, words, caption)


def forest_chart(run: Run, part: str, metric: str) -> tuple[Chart, str]:
    """Chart of one test and metric, and what it shows in words."""
    judged = run.judged(part, metric)
    rows = [
        Estimate(r["row"], r["mean"], r["ci_low"], r["ci_high"], _folds(run, r, part, metric))
        for _, r in judged.iterrows()
    ]
    best = list(best_rows(judged)["row"])
    words = f"{metric_name(metric)} on {where_tested(part)}: " + "; ".join(f"{r.name} {number(r.mean)}" for r in rows)
    return forest(rows, metric_name(metric), run.chance(metric, part), best), words


def _folds(run: Run, row: pd.Series, part: str, metric: str) -> list[float]:
    m = run.metrics
    mine = m[(m["row"] == row["row"]) & (m["part"] == part) & (m["metric"] == metric) & (m["subgroup"] == "")]
    return list(mine["value"])


def _table(run: Run, part: str, metrics: list[str]) -> Html:
    header = ["method", *(f"{metric_name(m)} (± over {run.over}) [95 % interval]" for m in metrics)]
    judged = {m: {row["row"]: row for _, row in run.judged(part, m).iterrows()} for m in metrics}
    top = {m: set(best_rows(run.judged(part, m))["row"]) for m in metrics}
    rows = []
    for name in run.rows:
        cells = []
        for m, found in judged.items():
            text = interval_text(found[name]) if name in found else DASH
            cells.append(tag("strong", text) if name in top[m] else text)
        rows.append([name, *cells])
    return join(table(header, rows, f"Tested on {where_tested(part)}"), _perfect(run, part, metrics))


def interval_text(row: pd.Series) -> str:
    """`0.671 (±0.041) [0.583, 0.764]`, the numbers of summary.csv; a perfect score has its exact bound beside it."""
    spread = "" if pd.isna(row["std"]) else f" (±{number(row['std'])})"
    limits = "" if pd.isna(row["ci_low"]) else f" [{number(row['ci_low'])}, {number(row['ci_high'])}]"
    exact = "" if pd.isna(row["exact_low"]) else f", exact bound {number(row['exact_low'])}"
    return f"{number(row['mean'])}{spread}{limits}{exact}"


def _comparisons(run: Run, metrics: list[str]) -> Html | None:
    if run.comparisons.empty:
        return None
    found = run.comparisons
    found = found[found["metric"].isin(metrics) & (found["subgroup"] == "")]
    rows = [
        [
            r["row"], r["reference"], where_tested(r["part"]), metric_name(r["metric"]), signed(r["difference"]),
            signed_interval(r), p_value(r["p_value"]),
        ]
        for _, r in found.iterrows()
    ]  # fmt: skip
    header = ["method", "against", "test", "metric", "difference", "95 % interval", "p"]
    return join(
        tag("h3", "Is the difference more than chance?"),
        paragraph(
            f"Every method against the reference, on the same patients of the same folds, resampled in pairs{_undone(run)}. Where fewer than ten "
            "patients are predicted otherwise, p of a metric of predicted classes is at least that of McNemar's exact test. "
            "The p-values are not corrected for the number of comparisons"
            + (f" ({len(rows)}; Bonferroni would ask for p below {0.05 / len(rows):.2g})." if rows else "."),
        ),
        table(header, rows, "Paired comparisons with the reference method"),
    )


def _counted(run: Run, values: int) -> str:
    """Folds; with several seeds how many numbers that makes, which are fewer where one is not defined."""
    folds, seeds = len(run.folds), len(run.study.seeds)
    if seeds == 1:
        return str(values)
    return f"{folds} x {seeds}" if values == folds * seeds else f"{values} of {folds} x {seeds}"


def _of_each_seed(run: Run) -> str:
    return "" if len(run.study.seeds) == 1 else " of each seed"


def _undone(run: Run) -> str:
    return "" if run.study.bootstrap else ", which this study did not do"


def _perfect(run: Run, part: str, metrics: list[str]) -> Html | None:
    """What a perfect score does not say."""
    rows = [(m, row) for m in metrics for _, row in run.judged(part, m).iterrows()]
    said = [
        f"{row['row']}, {metric_name(m)} {number(row['mean'])}: {note}."
        for m, row in rows
        if (note := about_perfect(row))
    ]
    return listing(said)


def _subgroups(run: Run, metrics: list[str]) -> Html | None:
    found = run.summary[(run.summary["subgroup"] != "") & run.summary["metric"].isin(metrics)]
    if found.empty:
        return None
    rows = [
        [r["row"], where_tested(r["part"], r["subgroup"]), metric_name(r["metric"]), interval_text(r)]
        for _, r in found.iterrows()
    ]
    everything = table(["method", "test", "metric", f"mean (± over {run.over}) [95 % interval]"], rows)
    by = words_of_list(run.study.by_columns)
    return join(tag("h3", f"Is anybody served worse? By {by}"), _worst(run), details(f"By {by}", everything))


def _worst(run: Run) -> Html | None:
    """Of each method the worst group, by the metric that the report is about."""
    said = []
    for part in run.parts:
        for name in run.rows:
            s = run.summary
            own = s[(s["row"] == name) & (s["part"] == part) & (s["metric"] == run.metric)]
            said += [[name, where_tested(part), sentence] for sentence in worst_groups(own)]
    words = (
        f"{metric_name(run.metric)} of groups of patients, each judged by itself with the same models. The worst of several groups is also "
        "the unluckiest: where its interval holds what the others have, it may be chance."
    )
    return (
        join(paragraph(f"{words[:1].upper()}{words[1:]}"), table(["method", "test", "worst group"], said))
        if said
        else None
    )


def _everything(run: Run) -> Html:
    whole = run.summary[run.summary["subgroup"] == ""]
    rows = [
        [r["row"], where_tested(r["part"]), metric_name(r["metric"]), interval_text(r), _counted(run, int(r["count"]))]
        for _, r in whole.iterrows()
    ]
    return table(["method", "test", "metric", f"mean (± over {run.over}) [95 % interval]", run.over], rows)

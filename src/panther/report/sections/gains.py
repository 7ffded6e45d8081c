"""Part of the results: what slides add to covariates."""

import pandas as pd

from panther.charts.results import Estimate, forest
from panther.cohort.covariates import COVARIATES
from panther.errors import listed
from panther.report.data import Run, metric_name, where_tested
from panther.report.html import DASH, Html, choice, join, number, p_value, paragraph, plot, table, tag
from panther.study.tables import below_chance

BASELINES = {"spline": "restricted cubic spline (3 knots)", "linear": "linear term"}


def gains(run: Run, metrics: list[str]) -> Html | None:
    """Every embedding beside covariates against covariates alone: pictures, and the numbers in a table."""
    if run.gains.empty:
        return None
    found = run.gains[run.gains["metric"].isin(metrics) & (run.gains["subgroup"] == "")]
    known = listed([one.column for one in run.study.covariates])
    figures = {
        f"{metric_name(metric)}, {where_tested(part)}": _figure(found, part, metric)
        for part in dict.fromkeys(found["part"])
        for metric in dict.fromkeys(found["metric"])
    }
    alone = run.summary[run.summary["method"] == COVARIATES]
    ratio = bool(found["likelihood_ratio"].notna().any())
    return join(
        tag("h3", f"What do slides add to {known}?"),
        paragraph(
            f"In the model of covariates alone numbers have a {BASELINES[found['baseline'].iloc[0]]}. "
            "Each row is an embedding and the covariates together, against the covariates alone, on the same patients of the same folds. ",
            "An interval that includes 0 says that nothing was shown to be gained. " if run.study.bootstrap else "",
            "The likelihood ratio asks whether the risk with the slide says more about survival than the risk by the covariates alone, on patients "
            "that neither model was trained on (one degree of freedom, one-sided: 0 where the slide points the wrong way). It has a p-value where "
            "one test set was predicted, and none over folds, whose models were trained on each other's test patients."
            if ratio
            else "",
        ),
        paragraph(*(f"{sentence} " for sentence in below_chance(alone, run.predictions, metrics))),
        choice("gains", "Show", figures),
        table(_header(ratio), [_row(row, ratio) for _, row in found.iterrows()], f"Gain over {known} alone"),
    )


def _figure(found: pd.DataFrame, part: str, metric: str) -> Html:
    rows = found[(found["part"] == part) & (found["metric"] == metric)]
    estimates = [Estimate(r["row"], r["difference"], r["ci_low"], r["ci_high"], ()) for _, r in rows.iterrows()]
    title = f"gain in {metric_name(metric)}"
    words = f"{title} on {where_tested(part)}: " + "; ".join(f"{one.name} {signed(one.mean)}" for one in estimates)
    chart = forest(estimates, title, 0.0, called="no gain")
    return plot(f"gains-{part}-{metric}", chart, words, f"{title.capitalize()} on {where_tested(part)}.")


def _header(ratio: bool) -> list[str]:
    tests = ["likelihood ratio", "p (likelihood ratio)"] if ratio else []
    return ["method", "test", "metric", "covariates", "with the slide", "gain", "95 % interval", "p", *tests]


def _row(row: pd.Series, ratio: bool) -> list[str]:
    cells = [
        row["row"], where_tested(row["part"]), metric_name(row["metric"]), number(row["covariates"]), number(row["with_slide"]),
        signed(row["difference"]), signed_interval(row), p_value(row["p_value"]),
    ]  # fmt: skip
    if not ratio:
        return cells
    tested = pd.notna(row["likelihood_ratio"])
    return [*cells, number(row["likelihood_ratio"], 1) if tested else DASH, p_value(row["p_likelihood_ratio"])]


def signed_interval(row: pd.Series) -> str:
    """Interval of a difference, where there is one."""
    return DASH if pd.isna(row["ci_low"]) else f"[{signed(row['ci_low'])}, {signed(row['ci_high'])}]"


def signed(value: float) -> str:
    """A difference with its sign."""
    return number(value) if pd.isna(value) or value < 0 else f"+{number(value)}"

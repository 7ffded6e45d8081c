"""Tab: how much of each score survives when patches lie at each other's places."""

import pandas as pd

from panther.charts.prototypes import Survival, shuffled_scores
from panther.evaluation.metrics import LOWER_IS_BETTER
from panther.report.data import Run, metric_name, where_tested
from panther.report.html import DASH, Html, choice, join, listing, number, p_value, paragraph, plot, plural, table, tag
from panther.report.material import Material
from panther.storage.tables import read_parquet
from panther.study.tables import SHUFFLE, row_names, shuffle_sentences, varying_factors

MEANING = (
    "Every slide's patches are given each other's places, the outline of the tissue and the patches themselves stay as they are. Methods are trained "
    "and tested on this shuffled tissue as they are on the real one: what a score loses is what it owes to where patches lie. A method that does not "
    "read places keeps exactly all of it. "
)


def shuffle(material: Material) -> Html | None:
    """Both scores of each method, in sentences, as pictures and as numbers; None where the study did not ask for it."""
    run = material.run
    file = run.folder / f"{SHUFFLE}.parquet"
    if not file.exists():
        return None
    found = read_parquet(file)
    found = found[found["metric"].isin(run.study.shown)]
    found = found.assign(row=row_names(found, varying_factors(found)))
    figures = {
        f"{metric_name(metric)}, {where_tested(part)}": _figure(run, found, part, metric)
        for part in dict.fromkeys(found["part"])
        for metric in run.study.shown
    }
    times = plural(int(found["shuffles"].max()), "shuffle") if found["shuffles"].any() else ""
    how = (
        f"The score on shuffled tissue is the mean of {times}; intervals are over patients, who are the same on both sides."
        if times
        else ""
    )
    return join(
        tag("h2", "Shuffle test"),
        paragraph(MEANING, how),
        listing(sentence.removeprefix("Shuffled tissue, ") for sentence in shuffle_sentences(found, run.study.shown)),
        choice("shuffle", "Show", figures),
        table(HEADER, [_row(row) for _, row in found.iterrows()], "Scores on tissue as it is and on shuffled tissue"),
    )


HEADER = ["method", "test", "metric", "as it is", "shuffled", "lost", "95 % interval", "p"]


def _row(row: pd.Series) -> list[str]:
    lost, low, high = _lost(row)
    cells = [row["row"], where_tested(row["part"]), metric_name(row["metric"]), number(row["score"])]
    if not row["shuffles"]:
        return [*cells, "the same", "exactly nothing", "", ""]
    limits = DASH if pd.isna(low) else f"[{number(low)}, {number(high)}]"
    return [*cells, number(row["shuffled"]), number(lost), limits, p_value(row["p_value"])]


def _lost(row: pd.Series) -> tuple[float, float, float]:
    """Loss and its interval; of an error, what it grew by."""
    if row["metric"] in LOWER_IS_BETTER:
        return -row["difference"], -row["ci_high"], -row["ci_low"]
    return row["difference"], row["ci_low"], row["ci_high"]


def _figure(run: Run, found: pd.DataFrame, part: str, metric: str) -> Html:
    rows = found[(found["part"] == part) & (found["metric"] == metric)]
    scores = [
        Survival(row["row"], row["score"], row["shuffled"], number(_lost(row)[0]) if row["shuffles"] else "exactly 0")
        for _, row in rows.iterrows()
    ]
    name = metric_name(metric)
    words = f"{name} on {where_tested(part)}, as it is and shuffled: " + "; ".join(
        f"{one.name} {number(one.score)} and {number(one.shuffled)}" for one in scores
    )
    caption = (
        f"{name} on {where_tested(part)}: blue on tissue as it is, orange where patches are shuffled within each slide."
    )
    chart = shuffled_scores(scores, name, run.chance(metric, part))
    return plot(f"shuffle-{part}-{metric}", chart, words, caption)

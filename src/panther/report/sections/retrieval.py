"""Tab: whether the slides nearest to a test slide have its label."""

import re

import pandas as pd

from panther.charts.display_names import method_title
from panther.charts.results import Estimate, forest
from panther.report.data import where_tested
from panther.report.html import Html, choice, join, number, p_value, paragraph, plot, table, tag
from panther.report.material import Material
from panther.storage.tables import read_parquet

TITLES = {"acc": "Acc", "mmv": "mMV", "map": "mAP"}
MEANING = (
    "Every test slide asks the training slides of its fold, none of them of the same patient, for its nearest. "
    "Acc@k is the share of slides with at least one of the k nearest of the same label, mMV@k the share where the majority has it (of labels "
    "that tie that of the nearest slide counts), mAP@k the mean average precision among the k nearest. Squares are means, lines their 95 % "
    "intervals over patients; the dashed line is what slides drawn at random would give."
)


def retrieval(material: Material) -> Html | None:
    """Forest plots by metric, the numbers, and the comparison with the reference; None where the study did not ask for it."""
    folder = material.run.folder
    files = folder / "retrieval.parquet", folder / "retrieval_comparisons.parquet"
    if not files[0].exists():
        return None
    summary, comparisons = (_shown(read_parquet(file)) if file.exists() else pd.DataFrame() for file in files)
    of_all = summary[summary["group"] == "all"]
    tests = of_all[["part", "metric", "k"]].drop_duplicates().itertuples(index=False, name=None)
    figures = {
        f"{_title(metric, k)}, {where_tested(part)}": _forest(of_all, part, metric, k) for part, metric, k in tests
    }
    return join(
        tag("h2", "Retrieval"),
        paragraph(MEANING),
        choice("retrieval", "Show", figures),
        tag("h3", "All representations"),
        *(_numbers(summary, part) for part in dict.fromkeys(summary["part"])),
        *_compared(comparisons),
    )


def _forest(of_all: pd.DataFrame, part: str, metric: str, k: int) -> Html:
    rows = of_all[(of_all["part"] == part) & (of_all["metric"] == metric) & (of_all["k"] == k)]
    estimates = [Estimate(r["representation"], r["value"], r["ci_low"], r["ci_high"], ()) for _, r in rows.iterrows()]
    best = [one.name for one in estimates if one.mean == max(other.mean for other in estimates)]
    name = _title(metric, k)
    words = f"{name} on {where_tested(part)}: " + "; ".join(f"{one.name} {number(one.mean)}" for one in estimates)
    chart = forest(estimates, name, float(rows["chance"].iloc[0]), best)
    return plot(f"retrieval-{part}-{metric}-{k}", chart, words, f"{name} on {where_tested(part)}.")


def _numbers(summary: pd.DataFrame, part: str) -> Html:
    """Groups down, metrics across, of every representation."""
    own = summary[summary["part"] == part]
    names = list(dict.fromkeys(zip(own["metric"], own["k"], strict=True)))
    rows = []
    for (name, group), found in own.groupby(["representation", "group"], sort=False):
        values = found.set_index(["metric", "k"])["value"]
        rows.append([name, group, int(found["queries"].iloc[0]), *(number(values[key]) for key in names)])
    chance = own[own["group"] == "all"].groupby(["metric", "k"], sort=False)["chance"].first()
    rows.append(["chance", "all", "", *(number(chance[key]) for key in names)])
    head = ["representation", "slides", "asked", *(_title(metric, k) for metric, k in names)]
    return join(tag("p", where_tested(part), class_="note"), table(head, rows))


def _compared(comparisons: pd.DataFrame) -> list[Html]:
    if comparisons.empty:
        return []
    shown = comparisons[comparisons["group"] == "all"]
    rows = [
        [r["representation"], f"{_title(r['metric'], r['k'])}, {where_tested(r['part'])}", number(r["difference"]),
         f"[{number(r['ci_low'])}, {number(r['ci_high'])}]", p_value(r["p_value"]), p_value(r["p_holm"])]
        for _, r in shown.iterrows()
    ]  # fmt: skip
    head = ["representation", "metric", "difference", "95 % interval", "p", "p (Holm)"]
    against = ", ".join(dict.fromkeys(shown["against"]))
    return [tag("h3", f"Against {against}"), table(head, rows)]


def _title(metric: str, k: int) -> str:
    return f"{TITLES[metric]}@{k}"


def _shown(written: pd.DataFrame) -> pd.DataFrame:
    """Table with methods named as everywhere in the report: `PANTHER [C 16] on pi`."""

    def title(name: str) -> str:
        method, rest = re.fullmatch(r"(.*?)((?: \[[^\]]*\])? on \w+)", name).groups()  # type: ignore[union-attr]
        return f"{method_title(method)}{rest}"

    named = [column for column in ("representation", "against") if column in written]
    return written.assign(**{column: [title(name) for name in written[column]] for column in named})

"""Tab: whether the task is panoramic or a needle, as far as the training patients say."""

import pandas as pd

from panther.charts.results import Estimate, forest
from panther.report.data import metric_name
from panther.report.html import Html, choice, join, listing, number, paragraph, plot, table, tag
from panther.report.material import Material
from panther.storage.tables import read_parquet
from panther.study.needle.decide import MARGIN
from panther.study.needle.looks import LOOKS
from panther.study.needle.words import diagnosis_sentences
from panther.study.tables import DIAGNOSIS

MEANING = (
    "A task is panoramic where the whole of a slide answers it: how much there is of every tissue (proportions), and what it looks like (means). "
    "It is a needle where few patches do, which stand out of the slide: those that no prototype explains (the tail), or those with the largest "
    "values of a feature (max-pooling). Each of the four looks is judged by a probe in inner cross-validation over training patients; test "
    "patients of the fold are not looked at. "
)
RULE = (
    "It is called one or the other only where the better look of one side leads by "
    f"{MARGIN} or more, the 95 % interval of the lead over patients is above 0 and the 99 % interval of its score above a guess; else it is "
    "undecided. The interval does not know that other training patients would have given other probes."
)
HEADER = ["look", "encoder", "fold", "score", "std over inner folds", "inner folds", "patients"]


def needle(material: Material) -> Html | None:
    """The verdict in words, the looks as a picture for each encoder, and every fold; None where the study did not ask for it."""
    scores, verdicts = (material.run.folder / f"{name}.parquet" for name in DIAGNOSIS)
    if not scores.exists() or not verdicts.exists():
        return None
    found, said = read_parquet(scores), read_parquet(verdicts)
    figures = {
        row["encoder"]: _figure(f"needle-{place}", row, found[found["encoder"] == row["encoder"]])
        for place, (_, row) in enumerate(said.iterrows())
    }
    rows = [
        [LOOKS[r["what"]], r["encoder"], r["fold"] + 1, number(r["score"]), number(r["std"]), r["inner_folds"], r["patients"]]
        for _, r in found.iterrows()
    ]  # fmt: skip
    metric = metric_name(said["metric"].iloc[0])
    return join(
        tag("h2", "Panoramic or needle"),
        paragraph(MEANING, RULE),
        listing(diagnosis_sentences(said)),
        choice("needle", "Encoder", figures),
        table(HEADER, rows, f"{metric} of probes on training patients, by inner cross-validation"),
    )


def _figure(key: str, verdict: pd.Series, found: pd.DataFrame) -> Html:
    looks = [
        Estimate(
            title,
            verdict[look],
            verdict[f"{look}_low"],
            verdict[f"{look}_high"],
            found[found["what"] == look]["score"].dropna().tolist(),
        )
        for look, title in LOOKS.items()
    ]
    metric = metric_name(verdict["metric"])
    words = f"{metric} of each look, {verdict['encoder']}: " + "; ".join(f"{o.name} {number(o.mean)}" for o in looks)
    best = [LOOKS[max(LOOKS, key=lambda look: verdict[look])]]
    chart = forest(looks, metric, float(verdict["chance"]), best)
    return plot(key, chart, words, f"{metric} on training patients, {verdict['encoder']}.")

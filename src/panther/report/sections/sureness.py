"""Tab: how sure predictions are, and whether they keep what they promise."""

import pandas as pd

from panther.charts.results import Promises, reliability_curves
from panther.report.data import Run, where_tested
from panther.report.html import (
    DASH,
    Html,
    choice,
    details,
    join,
    listing,
    number,
    paragraph,
    plot,
    table,
    tag,
)
from panther.report.material import Material

PREDICTED = "predicted class"
TITLES = {"ece": "calibration error", "brier": "Brier score", "log_loss": "log loss"}


def sureness(material: Material) -> Html | None:
    """Calibration, then prediction sets, as far as the study has them."""
    run = material.run
    parts = [_calibration(run), _sets(run)]
    return join(tag("h2", "How sure"), parts) if any(parts) else None


def _rows(run: Run, found: pd.DataFrame, part: str) -> list[str]:
    """Methods that have such rows, the best first."""
    best = list(run.best(part)["row"])
    return [name for name in [*best, *(n for n in run.rows if n not in best)] if name in set(found["row"])]


def _calibration(run: Run) -> Html | None:
    found = run.sureness.get("calibration")
    if found is None:
        return None
    figures = {
        f"{where_tested(part)}: {name}": _reliability(run, part, name, f"reliability-{part}-{position}")
        for part in run.parts
        for position, name in enumerate(_rows(run, found, part))
    }
    on = next((text for text in found["calibrated_on"] if text), "")
    how = (
        f"Calibrated probabilities are tempered by one number that was learned from the {on}; above 1 the model was too sure."
        if on
        else "They could not be calibrated: the study has neither a validation part nor enough other folds."
    )
    return join(
        tag("h3", "Do probabilities mean what they say?"),
        paragraph(
            "Of those who are told 0.8, eight of ten should be right. Points below the dotted line promise too much, points above too "
            f"little; bars are 95 % intervals over patients. {how}"
        ),
        choice("reliability", "Show", figures),
        *(_scores(run, found, part) for part in run.parts),
        paragraph(
            "The calibration error is the mean gap between promise and truth in ten bins. By chance: what so few patients show even "
            "where every probability is right, in the mean and in 19 of 20 cohorts at most; an error below that is no evidence against "
            "the model. Brier score and log loss also ask whether classes are told apart. Of all, less is better."
        ),
    )


def _reliability(run: Run, part: str, name: str, key: str) -> Html:
    found = run.sureness["reliability"]
    mine = found[(found["row"] == name) & (found["part"] == part)]
    classes = [c for c in dict.fromkeys(mine["class"]) if c != PREDICTED]
    shown = classes[0] if len(classes) == 1 else PREDICTED
    mine = mine[mine["class"] == shown]
    curves = {
        what: Promises(*(own[column].to_numpy(float) for column in ("predicted", "observed", "ci_low", "ci_high")))
        for what, own in mine.groupby("probabilities", sort=False)
    }
    said = f"Reliability of {name} on {where_tested(part)}, {shown}, all folds together"
    last = mine[mine["probabilities"] == list(curves)[-1]]
    words = "; ".join(f"told {p:.2f}, true {o:.2f}" for p, o in zip(last["predicted"], last["observed"], strict=True))
    what = "the predicted class" if shown == PREDICTED else shown
    return plot(key, reliability_curves(curves, what), f"{said}: {words}.", f"{said}.", widest=700)  # type: ignore[arg-type]


def _scores(run: Run, found: pd.DataFrame, part: str) -> Html:
    rows = []
    for name in _rows(run, found, part):
        mine = found[(found["row"] == name) & (found["part"] == part)]
        for what, own in mine.groupby("probabilities", sort=False):
            by = {r["metric"]: r for _, r in own.iterrows()}
            chance = f"{number(by['ece']['by_chance'])} (up to {number(by['ece']['by_chance_high'])})"
            temperature = by["ece"]["temperature"]
            cells = [_interval(by[metric], "value") for metric in TITLES]
            rows.append([f"{name}, {what}", cells[0], chance, *cells[1:], number(temperature, 2)])
    header = ["method", TITLES["ece"], "by chance", *list(TITLES.values())[1:], "temperature"]
    return table(header, rows, f"Tested on {where_tested(part)}, all folds together [95 % interval over patients]")


def _sets(run: Run) -> Html | None:
    found = run.sureness.get("prediction_sets")
    if found is None:
        return None
    values = run.classes is None
    what = "interval" if values else "set"
    level = f"{100 * found['level'].iloc[0]:g} %"
    overall = found[found["by"] == "all"]
    header = ["method", "test", "holds the truth", "mean width" if values else "classes in a set"]
    header += [] if values else ["one class only"]
    rows = [
        [
            r["row"], where_tested(r["part"]), _interval(r, "coverage"), number(r["size"], 2),
            *([] if values else [number(r["single"], 2)]),
        ]
        for _, r in overall.iterrows()
    ]  # fmt: skip
    groups = found[found["by"] != "all"]
    said = (
        f"Each prediction comes with {'an' if values else 'a'} {what} that should hold the truth for {level} of new patients like these"
        + (
            ""
            if values
            else "; the most probable class is always in it, and a set of all classes says that the model cannot tell"
        )
        + f". Learned from the {found['calibrated_on'].iloc[0]} (split conformal prediction; a patient counts once, however many slides). "
        f"That holds on average, not {'' if values else 'in every class and '}at every site."
    )
    return join(
        tag("h3", f"Do {what}s hold the truth?"),
        paragraph(said),
        table(header, rows, f"Prediction {what}s of {level} [95 % interval over patients]"),
        listing(_worst(run, groups)),
        details("By class and site" if not values else "By site", _by_group(groups)) if len(groups) else None,
    )


def _worst(run: Run, groups: pd.DataFrame) -> list[str]:
    """Of the best method on each test: the class and the site whose patients are held least often."""
    said = []
    for part in run.parts:
        names = _rows(run, groups, part)
        mine = groups[(groups["part"] == part) & (groups["row"] == names[0])] if names else groups.iloc[:0]
        for by, own in mine.groupby("by", sort=False):
            if len(own) > 1:
                worst = own.iloc[int(own["coverage"].to_numpy().argmin())]
                said.append(
                    f"Least often, by {by} ({names[0]}, {where_tested(part)}): {worst['value']}, {_interval(worst, 'coverage')} of "
                    f"{int(worst['patients'])} patients."
                )
    return said


def _by_group(groups: pd.DataFrame) -> Html:
    rows = [
        [r["row"], where_tested(r["part"]), r["by"], r["value"], _interval(r, "coverage"), number(r["size"], 2), int(r["patients"])]
        for _, r in groups.iterrows()
    ]  # fmt: skip
    return table(["method", "test", "by", "group", "holds the truth [95 % interval]", "size", "patients"], rows)


def _interval(row: pd.Series, name: str) -> str:
    if pd.isna(row[name]):
        return DASH
    limits = "" if pd.isna(row["ci_low"]) else f" [{number(row['ci_low'])}, {number(row['ci_high'])}]"
    return f"{number(row[name])}{limits}"

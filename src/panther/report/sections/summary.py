"""First tab: question, cohort, result, checks, and what other commands would add."""

import pandas as pd

from panther.evaluation.intervals import holm
from panther.evaluation.verdicts import about_perfect, about_selection, winners
from panther.report.checks import checklist, checks
from panther.report.data import Run, metric_name, where_tested
from panther.report.html import Html, details, join, listing, number, p_value, paragraph, plural, tag, tiles
from panther.report.material import Material
from panther.report.outcomes import outcome_of
from panther.report.sections.cohort import cohort_of, counts
from panther.report.sections.gains import signed
from panther.report.sections.results import MEANING, forest_of

LEVEL = 0.05  # of significance
ADDED = {
    "Prototypes": "What each prototype looks like, how much of it there is, and in whom:",
    "Maps": "Where each prototype lies on a slide:",
    "Tissue classes": "Whether prototypes agree with tissue classes that people named:",
    "Attribution": "Which prototypes drive the prediction:",
    "Mixtures": "How much of each prototype every sample has (the cache of the run is gone, or no method keeps it):",
    "Curves": "Curves of training and risk (the cache of the run is gone):",
}


def summary(material: Material, absent: list[str]) -> Html:
    """Plain words; ``absent`` are the tabs that have nothing to show."""
    run, missing = material.run, _hints(material, absent)
    return join(
        tag("h2", "In short"),
        tiles(counts(run)),
        tag("h3", "What was asked"),
        paragraph(_question(run)),
        tag("h3", "What came out"),
        [paragraph(sentence) for sentence in _answer(run)],
        paragraph(MEANING.get(run.metric, ""), class_="facts"),
        forest_of(run, run.parts[0], run.metric, "summary"),
        tag("h3", "Can it be trusted?"),
        checklist(checks(material)),
        details("What this report could also show", listing(missing)) if missing else None,
    )


def _question(run: Run) -> str:
    groups = cohort_of(run)
    patients = run.cohort.loc[groups["study"], "patient"].nunique()
    text = (
        f"{outcome_of(run).question} of {plural(patients, 'patient')}? "
        f"{plural(len(run.rows), 'way')} of answering (a method and a head) were compared, "
        "each trained and tested on "
        f"{plural(len(run.folds), 'division')} of the patients"
    )
    external = [f"{name} ({plural(len(ids), 'sample')})" for name, ids in groups.items() if name != "study"]
    return text + (f", and tested on {', '.join(external)}." if external else ".")


def _answer(run: Run) -> list[str]:
    sentences = []
    for part in run.parts:
        best = run.best(part)
        if best.empty:
            continue
        where = "On test patients" if part == "test" else f"On {where_tested(part)}"
        by = "by " + best["row"].iloc[0] if len(best) == 1 else winners(list(best["row"]))
        of, selection = best["of_rows"].iloc[0], about_selection(best.iloc[0])
        among = "" if pd.isna(of) else f" of {of:.0f} rows"
        interval = f" ({selection})" if selection else _interval(best.iloc[0]) if len(best) == 1 else ""
        value = f"{number(best['mean'].iloc[0])}{interval}"
        sentences.append(f"{where} the best mean {metric_name(run.metric)}{among} was {value}, {by}.")
        notes = dict.fromkeys(about_perfect(row) for _, row in best.iterrows())
        sentences += [f"{note[:1].upper()}{note[1:]}." for note in notes if note]
    return sentences + [sentence for _, best in run.best().iterrows() if (sentence := _reference(run, best))]


def _interval(row: pd.Series) -> str:
    if pd.isna(row["ci_low"]):
        return ""
    return f" (95 % interval {number(row['ci_low'])} to {number(row['ci_high'])})"


def _reference(run: Run, best: pd.Series) -> str | None:
    """How the best stands against the reference; it was picked by its test result, so p counts all that it was picked from."""
    if run.comparisons.empty:
        return None
    c = run.comparisons
    judged = c[(c["part"] == "test") & (c["metric"] == run.metric) & (c["subgroup"] == "")]
    judged = judged.assign(p_corrected=holm(judged["p_value"].tolist()))
    found = judged[judged["row"] == best["row"]]
    if found.empty:
        return None
    r = found.iloc[0]
    if pd.isna(r["p_value"]):
        return (
            f"Against {r['reference']} on the same patients the difference of {r['row']} is {signed(r['difference'])}; "
            "it could not be tested by resampling the patients."
        )
    verdict = "more than chance would give" if r["p_corrected"] < LEVEL else "not shown to be more than chance"
    tests = int(judged["p_value"].notna().sum())
    corrected = f", Holm-corrected for {tests} comparisons {p_value(r['p_corrected'])}" if tests > 1 else ""
    return (
        f"Against {r['reference']} on the same patients the difference of {r['row']} is {signed(r['difference'])} (95 % interval "
        f"{signed(r['ci_low'])} to {signed(r['ci_high'])}, p = {p_value(r['p_value'])}{corrected}): {verdict}."
    ).replace("p = <", "p <")


def _hints(material: Material, absent: list[str]) -> list[object]:
    """One line per tab that has nothing to show."""
    commands = _commands(material)
    return [join(ADDED[name], " ", tag("code", commands[name])) for name in absent if name in ADDED]


def _commands(material: Material) -> dict[str, Html | str]:
    run = material.run
    features = next(iter(run.study.features.values()), "FEATURES")  # a study of given vectors has none
    file = "protos.safetensors" if material.mixtures is None else f"{run.folder.name}/cache/{material.mixtures.file}"
    table = f" --table {run.study.table}" if run.study.table else ""
    group = f" --groups {run.study.task.label}" if run.study.task.label else ""
    again = f"panther run study.yaml -o {run.folder.name}/"
    return {
        "Prototypes": f"panther atlas {features} -p {file} -o atlas/ --slides SLIDES{table}{group}, then --atlas atlas/",
        "Maps": f"panther map {features} -p {file} -o maps/ --slides SLIDES, then --maps maps/",
        "Tissue classes": f"panther concordance {features} -p {file} --classifier tissue.safetensors -o agreement/, then --agreement agreement/",
        "Attribution": f"panther attribute MODEL {features} -o attribution/, then --attribution attribution/",
        "Mixtures": again,
        "Curves": again,
    }

"""First tab: what was asked, on whom, what came out, and whether to believe it."""

import pandas as pd

from panther.evaluation.correction import holm
from panther.evaluation.verdicts import about_perfect, winners
from panther.report.checks import checklist, checks
from panther.report.data import Run, metric_name, where_tested
from panther.report.html import Html, details, join, listing, number, p_value, paragraph, plural, tag, tiles
from panther.report.material import Material
from panther.report.sections.cohort import cohort_of, counts
from panther.report.sections.results import MEANING, forest_of, signed

LEVEL = 0.05  # of significance


def summary(material: Material, missing: list[object]) -> Html:
    """Plain words; ``missing`` says what other commands would add."""
    run = material.run
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
    task, groups = run.study.task, cohort_of(run)
    patients = run.cohort.loc[groups["study"], "patient"].nunique()
    if run.classes:
        what = f"Can {task.label} ({', '.join(run.classes)}) be told from the tissue"
    else:
        what = f"Can {run.endpoint} be predicted from the tissue"
    said = (
        f"{what} of {plural(patients, 'patient')}? {plural(len(run.rows), 'way')} of answering (a method and a head) were compared, "
        "each trained and tested on "
        f"{plural(len(run.folds), 'division')} of the patients"
    )
    external = [f"{name} ({plural(len(ids), 'sample')})" for name, ids in groups.items() if name != "study"]
    return said + (f", and tested on {', '.join(external)}." if external else ".")


def _answer(run: Run) -> list[str]:
    said = []
    for part in run.parts:
        best = run.best(part)
        if best.empty:
            continue
        where = "On test patients" if part == "test" else f"On {where_tested(part)}"
        by = "by " + best["row"].iloc[0] if len(best) == 1 else winners(list(best["row"]))
        value = f"{number(best['mean'].iloc[0])}{_interval(best.iloc[0]) if len(best) == 1 else ''}"
        said.append(f"{where} the best mean {metric_name(run.metric)} was {value}, {by}.")
        notes = dict.fromkeys(about_perfect(row) for _, row in best.iterrows())
        said += [f"{note[:1].upper()}{note[1:]}." for note in notes if note]
    return said + [sentence for _, best in run.best().iterrows() if (sentence := _reference(run, best))]


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
    judged = judged.assign(p_corrected=holm(judged["p_bootstrap"].tolist()))
    found = judged[judged["row"] == best["row"]]
    if found.empty:
        return None
    r = found.iloc[0]
    verdict = "more than chance would give" if r["p_corrected"] < LEVEL else "not shown to be more than chance"
    tests = int(judged["p_bootstrap"].notna().sum())
    corrected = f", Holm-corrected for {tests} comparisons {p_value(r['p_corrected'])}" if tests > 1 else ""
    return (
        f"Against {r['reference']} on the same patients the difference of {r['row']} is {signed(r['difference'])} (95 % interval "
        f"{signed(r['ci_low'])} to {signed(r['ci_high'])}, p = {p_value(r['p_bootstrap'])}{corrected}): {verdict}."
    ).replace("p = <", "p <")

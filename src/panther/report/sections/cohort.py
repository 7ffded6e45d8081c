"""Tab: who is in the study."""

import numpy as np
import pandas as pd

from panther.charts.results import histogram, stacked
from panther.charts.survival import survival_curves
from panther.evaluation.survival_metrics import kaplan_meier
from panther.report.data import Run
from panther.report.html import Html, details, join, listing, paragraph, plural, table, tag, tiles
from panther.report.material import Material
from panther.report.plots import plot

MOST_SITES = 30


def cohort(material: Material) -> Html:
    """Counts, the outcome, sizes, and what the run said about the tables."""
    run = material.run
    return join(
        tag("h2", "Cohort"),
        tiles(counts(run)),
        tag("h3", "What is predicted"),
        _outcome(run),
        _sites(run),
        _sizes(run),
        tag("h3", "What the run noted") if run.record["notes"] else None,
        listing(run.record["notes"]),
        details("Columns of the clinical table", _columns(run)),
    )


def counts(run: Run) -> dict[str, str]:
    """The size of the study in a few numbers."""
    table = run.cohort
    external = {p for name, ids in cohort_of(run).items() if name != "study" for p in run.patients(ids)}
    found = {
        "patients" + (f" ({len(external):,} external)" if external else ""): f"{table['patient'].nunique():,}",
        "slides": f"{pd.to_numeric(table['n_slides']).sum():,.0f}",
    }
    for name in (c for c in table.columns if c == "patches" or c.startswith("patches_")):
        found[name.replace("_", ", ")] = f"{pd.to_numeric(table[name], errors='coerce').sum():,.0f}"
    if run.classes:
        found["classes"] = str(len(run.classes))
    else:
        found["events"] = f"{int((table['event'] == '1').sum()):,}"
    sites = table.loc[table["site"] != "", "site"].nunique()
    return found | ({"sites": f"{sites:,}"} if sites else {})


def cohort_of(run: Run) -> dict[str, list[str]]:
    """Samples of the study itself, and of each external cohort."""
    external: dict[str, list[str]] = {}
    for parts in run.folds:
        external |= {name: ids for name, ids in parts.items() if name.startswith("test_")}
    elsewhere = {sample for ids in external.values() for sample in ids}
    own = [sample for sample in run.cohort.index if sample not in elsewhere]
    return {"study": own, **{name.removeprefix("test_"): ids for name, ids in external.items()}}


def _outcome(run: Run) -> Html:
    groups = cohort_of(run)
    if run.classes:
        count = np.array(
            [[int((run.cohort.loc[ids, "label"] == c).sum()) for c in run.classes] for ids in groups.values()]
        )
        alt = "Samples of each class: " + "; ".join(
            f"{name}: " + ", ".join(f"{c} {n}" for c, n in zip(run.classes, row, strict=True))
            for name, row in zip(groups, count, strict=True)
        )
        return plot("classes", stacked(list(groups), run.classes, count, "samples"), alt)
    curves = {}
    for name, ids in groups.items():
        time, event = pd.to_numeric(run.cohort.loc[ids, "time"]), run.cohort.loc[ids, "event"] == "1"
        curves[f"{name} (n = {len(ids)}, {int(event.sum())} events)"] = kaplan_meier(
            time.to_numpy(float), event.to_numpy()
        )
    return plot(
        "follow-up",
        survival_curves(curves, run.time_unit, run.endpoint),
        f"Share of patients without the event over time: {', '.join(curves)}",
        "Kaplan-Meier estimate of everybody, with 95 % bands, before any prediction.",
    )


def _sites(run: Run) -> Html | None:
    known = run.cohort[run.cohort["site"] != ""]
    if known.empty:
        return paragraph("Sites are not known: the table has no site column, and the names are not TCGA barcodes.")
    order = known["site"].value_counts().sort_index().sort_values(ascending=False, kind="stable").index.tolist()
    names = run.classes or ["censored", "event"]
    value = known["label"] if run.classes else known["event"].map({"0": "censored", "1": "event"})
    count = np.array([[int(((known["site"] == s) & (value == v)).sum()) for v in names] for s in order[:MOST_SITES]])
    alt = "Samples of each site: " + ", ".join(f"{s} {row.sum()}" for s, row in zip(order, count, strict=False))
    more = f" The largest {MOST_SITES} of {len(order)} are shown." if len(order) > MOST_SITES else ""
    said = f"{plural(len(order), 'site')}. Where a site has mostly one outcome, a model can score by recognising the hospital.{more}"
    return join(tag("h3", "Sites"), plot("sites", stacked(order[:MOST_SITES], names, count, "samples"), alt, said))


def _sizes(run: Run) -> Html | None:
    column = next((c for c in run.cohort.columns if c == "patches" or c.startswith("patches_")), None)
    if column is None:
        return None
    number = pd.to_numeric(run.cohort[column], errors="coerce").dropna().to_numpy()
    said = f"Patches a sample: median {np.median(number):,.0f}, from {number.min():,.0f} to {number.max():,.0f}."
    return join(tag("h3", "How much tissue"), plot("patches", histogram(number, "patches a sample"), said))


def _columns(run: Run) -> Html:
    rows = []
    for name in run.cohort.columns:
        known = run.cohort[name][run.cohort[name] != ""]
        common = ", ".join(f"{value} ({n})" for value, n in known.value_counts().head(3).items())
        rows.append([name, len(known), known.nunique(), common if known.nunique() <= 60 else f"e.g. {known.iloc[0]}"])
    return table(["column", "known", "distinct", "most frequent"], rows)

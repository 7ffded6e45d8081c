"""Tabs: who is in the study, who trained and who tested, and the proof that nobody did both."""

from pathlib import Path

import numpy as np
import pandas as pd

from panther.charts.results import counts as counts_chart
from panther.charts.results import histogram, stacked
from panther.charts.survival import survival_curves
from panther.evaluation.survival_metrics import kaplan_meier
from panther.report.checks import overlaps
from panther.report.data import Run
from panther.report.html import DASH, Html, details, join, listing, paragraph, plot, plural, table, tag, tiles
from panther.report.material import Material
from panther.study.file import ColumnSplits
from panther.study.tables import part_name

MOST_SITES, MOST_FOLD_SITES = 30, 40  # in a chart
PARTS = {"train": "training", "val": "validation", "test": "test"}


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
    patches = pd.to_numeric(run.cohort[column], errors="coerce").dropna().to_numpy()
    said = f"Patches per sample: median {np.median(patches):,.0f}, from {patches.min():,.0f} to {patches.max():,.0f}."
    return join(tag("h3", "How much tissue"), plot("patches", histogram(patches, "patches per sample"), said))


def _columns(run: Run) -> Html:
    rows = []
    for name in run.cohort.columns:
        known = run.cohort[name][run.cohort[name] != ""]
        common = ", ".join(f"{value} ({n})" for value, n in known.value_counts().head(3).items())
        rows.append([name, len(known), known.nunique(), common if known.nunique() <= 60 else f"e.g. {known.iloc[0]}"])
    return table(["column", "known", "distinct", "most frequent"], rows)


def splits(material: Material) -> Html:
    """Sizes and balance of folds; overlaps counted from the lists."""
    run = material.run
    return join(
        tag("h2", "Splits and leakage checks"),
        paragraph(_how(run)),
        tag("h3", "Is anybody on both sides?"),
        paragraph(
            "Counted from the samples of every fold. A patient on both sides would make the results worthless; a site on both "
            "sides makes them optimistic."
        ),
        _overlap(run),
        tag("h3", "Are the folds alike?"),
        _balance(run),
        _sites_in_folds(run),
        details("Sizes of all parts", _part_sizes(run)),
    )


def _how(run: Run) -> str:
    spec, folds = run.study.splits, len(run.folds)
    if isinstance(spec, ColumnSplits):
        return f"The {folds} splits are those of the table's column {spec.column}; everything that is fitted is fitted on the training part of each."
    if isinstance(spec, Path):
        return f"The {folds} splits were read from files ({spec.name}); everything that is fitted is fitted on the training part of each."
    return (
        f"{folds} splits by the scheme {spec.scheme} (seed {spec.seed}), at patient level. Prototypes, scaling and models are fitted on the "
        "training part of each fold only."
    )


def _overlap(run: Run) -> Html:
    rows = [
        [
            f"fold {o.fold + 1}",
            o.patients,
            o.sites if o.tested else "not known",
            f"{o.seen} of {o.tested}" if o.tested else DASH,
        ]
        for o in overlaps(run)
    ]
    header = [
        "",
        "patients in training and test",
        "sites in training and test",
        "test samples from a site seen in training",
    ]
    return table(header, rows, "Overlap of training and test")


def _balance(run: Run) -> Html:
    names = run.classes or ["censored", "event"]
    labels, rows = [], []
    for fold, parts in enumerate(run.folds):
        for part in ("train", "test"):
            if part in parts:
                labels.append(f"fold {fold + 1}, {PARTS[part]}")
                rows.append([outcome_count(run, parts[part], name) for name in names])
    count = np.array(rows)
    alt = "; ".join(f"{label}: {', '.join(map(str, row))}" for label, row in zip(labels, rows, strict=True))
    return plot(
        "balance",
        stacked(labels, names, count, "samples"),
        f"{' / '.join(names)} by part: {alt}",
        "Outcome of each part.",
    )


def _sites_in_folds(run: Run) -> Html | None:
    site = run.cohort["site"]
    names = sorted(set(site) - {""})
    if not names or len(names) > MOST_FOLD_SITES:
        return None
    tests = [parts.get("test", []) for parts in run.folds]
    count = np.array([[int((site.loc[ids] == name).sum()) for ids in tests] for name in names])
    columns = [f"fold {k + 1}" for k in range(len(tests))]
    said = "Test samples of each site in each fold. With site-preserving folds every row has one filled cell."
    return plot("sites-in-folds", counts_chart(count, names, columns, "test\nsamples"), said)


def _part_sizes(run: Run) -> Html:
    names = run.classes or ["censored", "event"]
    rows = [
        [
            f"fold {fold + 1}, {PARTS.get(part, part_name(part))}",
            len(ids),
            len(run.patients(ids)),
            *(outcome_count(run, ids, name) for name in names),
            len(set(run.cohort["site"].loc[ids]) - {""}),
        ]
        for fold, parts in enumerate(run.folds)
        for part, ids in parts.items()
    ]
    return table(["part", "samples", "patients", *names, "sites"], rows)


def outcome_count(run: Run, ids: list[str], name: str) -> int:
    """Samples of a class, or with or without an event."""
    rows = run.cohort.loc[ids]
    return int(
        (rows["label"] == name).sum() if run.classes else (rows["event"] == ("1" if name == "event" else "0")).sum()
    )

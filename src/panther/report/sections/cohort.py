"""Tabs: who is in the study, who trained and who tested, and the check that no patient did both."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from panther.charts.results import counts as counts_chart
from panther.charts.results import histogram, stacked
from panther.charts.survival import survival_curves
from panther.evaluation.survival_metrics import kaplan_meier
from panther.report.checks import overlaps
from panther.report.data import Run
from panther.report.html import DASH, Html, details, join, listing, paragraph, plot, plural, table, tag, tiles, words
from panther.report.material import Material
from panther.report.outcomes import has_label, observed, outcome_of, short
from panther.study.file import ColumnSplits
from panther.study.tables import part_name

MOST_SITES, MOST_FOLD_SITES = 30, 40  # in a chart
PARTS = {"train": "training", "val": "validation", "test": "test"}


def cohort(material: Material) -> Html:
    """Counts, the outcome, sizes, and the notes of the run on the tables."""
    run = material.run
    return join(
        tag("h2", "Cohort"),
        tiles(counts(run)),
        tag("h3", "What is predicted"),
        _outcome(run),
        _sites(run),
        _sizes(run),
        tag("h3", "What the run noted") if run.record["notes"] else None,
        listing([words(note) for note in run.record["notes"]]),
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
    found |= dict([outcome_of(run).tile])
    sites = table.loc[table["site"] != "", "site"].nunique()
    return found | ({"sites": f"{sites:,}"} if sites else {})


def cohort_of(run: Run) -> dict[str, list[str]]:
    """Samples of the study itself, and of each external cohort."""
    external: dict[str, dict[str, None]] = {}  # all folds together, each sample once
    for parts in run.folds:
        for name, ids in parts.items():
            if name.startswith("test_"):
                external.setdefault(name.removeprefix("test_"), {}).update(dict.fromkeys(ids))
    elsewhere = {sample for ids in external.values() for sample in ids}
    own = [sample for sample in run.cohort.index if sample not in elsewhere]
    return {"study": own, **{name: list(ids) for name, ids in external.items()}}


def _outcome(run: Run) -> Html:
    return OUTCOME[run.kind](run, cohort_of(run))


def _classes(run: Run, groups: dict[str, list[str]]) -> Html:
    outcome = outcome_of(run)
    count = np.array([outcome.counts(ids) for ids in groups.values()])
    alt = "Samples of each class: " + "; ".join(
        f"{name}: " + ", ".join(f"{c} {n}" for c, n in zip(outcome.groups, row, strict=True))
        for name, row in zip(groups, count, strict=True)
    )
    return plot("classes", stacked(list(groups), outcome.groups, count, "samples"), alt)


def _values(run: Run, groups: dict[str, list[str]]) -> Html:
    """Distribution of the values of all patients, and of each cohort in numbers."""
    name, said = str(run.study.task.value), []
    for cohort, ids in groups.items():
        low, middle, high = np.quantile(observed(run, ids), [0, 0.5, 1])
        said.append(f"{cohort} {short(low)} to {short(high)}, median {short(middle)}")
    words = f"Distribution of {name}: {'; '.join(said)}."
    return plot("values", histogram(observed(run), name), words, words)


def _labels(run: Run, groups: dict[str, list[str]]) -> Html:
    """Of each label who has it, who has not, and of whom it is not known."""
    names = list(run.study.task.labels or ())
    values = [has_label(run, name) for name in names]
    count = np.array([[int((v == 1).sum()), int((v == 0).sum()), int(np.isnan(v).sum())] for v in values])
    alt = "; ".join(
        f"{name}: {has} with, {lacks} without, {unknown} not known"
        for name, (has, lacks, unknown) in zip(names, count, strict=True)
    )
    return plot(
        "labels", stacked(names, ["with", "without", "not known"], count, "samples"), f"Samples with each label: {alt}."
    )


def _follow_up(run: Run, groups: dict[str, list[str]]) -> Html:
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


OUTCOME: dict[str, Callable[[Run, dict[str, list[str]]], Html]] = {
    "classification": _classes,
    "survival": _follow_up,
    "regression": _values,
    "labels": _labels,
}


def _sites(run: Run) -> Html | None:
    known = run.cohort[run.cohort["site"] != ""]
    if known.empty:
        return paragraph("Sites are not known: the table has no site column, and the names are not TCGA barcodes.")
    order = known["site"].value_counts().sort_index().sort_values(ascending=False, kind="stable").index.tolist()
    outcome = outcome_of(run)
    count = np.array([outcome.counts(known.index[known["site"] == site]) for site in order[:MOST_SITES]])
    alt = "Samples of each site: " + ", ".join(f"{s} {row.sum()}" for s, row in zip(order, count, strict=False))
    more = f" The largest {MOST_SITES} of {len(order)} are shown." if len(order) > MOST_SITES else ""
    text = f"{plural(len(order), 'site')}. Where a site has mostly one outcome, a model can score by recognising the hospital.{more}"
    return join(
        tag("h3", "Sites"),
        plot("sites", stacked(order[:MOST_SITES], outcome.groups, count, outcome.counted), alt, text),
    )


def _sizes(run: Run) -> Html | None:
    column = next((c for c in run.cohort.columns if c == "patches" or c.startswith("patches_")), None)
    if column is None:
        return None
    patches = pd.to_numeric(run.cohort[column], errors="coerce").dropna().to_numpy()
    text = f"Patches per sample: median {np.median(patches):,.0f}, from {patches.min():,.0f} to {patches.max():,.0f}."
    return join(tag("h3", "How much tissue"), plot("patches", histogram(patches, "patches per sample"), text))


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
            len(o.patients),
            o.sites if o.tested else "not known",
            f"{len(o.seen)} of {len(o.tested)}" if o.tested else DASH,
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
    outcome = outcome_of(run)
    labels, rows = [], []
    for fold, parts in enumerate(run.folds):
        for part in ("train", "test"):
            if part in parts:
                labels.append(f"fold {fold + 1}, {PARTS[part]}")
                rows.append(outcome.counts(parts[part]))
    count = np.array(rows)
    alt = "; ".join(f"{label}: {', '.join(map(str, row))}" for label, row in zip(labels, rows, strict=True))
    return plot(
        "balance",
        stacked(labels, outcome.groups, count, outcome.counted),
        f"{' / '.join(outcome.groups)} by part: {alt}",
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
    text = "Test samples of each site in each fold. With site-preserving folds every row has one filled cell."
    return plot("sites-in-folds", counts_chart(count, names, columns, "test\nsamples"), text)


def _part_sizes(run: Run) -> Html:
    outcome = outcome_of(run)
    rows = [
        [
            f"fold {fold + 1}, {PARTS.get(part, part_name(part))}",
            len(ids),
            len(run.patients(ids)),
            *outcome.counts(ids),
            len(set(run.cohort["site"].loc[ids]) - {""}),
        ]
        for fold, parts in enumerate(run.folds)
        for part, ids in parts.items()
    ]
    return table(["part", "samples", "patients", *outcome.groups, "sites"], rows)

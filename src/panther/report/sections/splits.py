"""Tab: who trained and who tested, and the proof that nobody did both."""

from pathlib import Path

import numpy as np

from panther.charts.results import counts, stacked
from panther.report.checks import overlaps
from panther.report.data import Run
from panther.report.html import DASH, Html, details, join, paragraph, table, tag
from panther.report.material import Material
from panther.report.plots import plot
from panther.study.file import ColumnSplits
from panther.study.tables import part_name

PARTS = {"train": "training", "val": "validation", "test": "test"}
MOST_SITES = 40


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
        _sites(run),
        details("Sizes of all parts", _sizes(run)),
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


def _sites(run: Run) -> Html | None:
    site = run.cohort["site"]
    names = sorted(set(site) - {""})
    if not names or len(names) > MOST_SITES:
        return None
    tests = [parts.get("test", []) for parts in run.folds]
    count = np.array([[int((site.loc[ids] == name).sum()) for ids in tests] for name in names])
    columns = [f"fold {k + 1}" for k in range(len(tests))]
    said = "Test samples of each site in each fold. With site-preserving folds every row has one filled cell."
    return plot("sites-in-folds", counts(count, names, columns, "test\nsamples"), said)


def _sizes(run: Run) -> Html:
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

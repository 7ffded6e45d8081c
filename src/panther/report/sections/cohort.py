"""Tabs of the data and settings: cohort, splits, and reproduction of the run."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from panther.charts.display_names import column_titles
from panther.charts.results import histogram, stacked, survival_curves
from panther.cohort.covariates import COVARIATES
from panther.errors import counted
from panther.evaluation.survival_metrics import kaplan_meier
from panther.report.checks import checks, overlaps
from panther.report.data import Run, cohorts_of, has_label, observed, outcome_of, short
from panther.report.figures import Figure, plural
from panther.report.material import Material
from panther.study.file import ColumnSplits
from panther.study.tables import part_name

MOST_SITES, MOST_FOLD_SITES = 30, 40  # in a chart
PARTS = {"train": "training", "val": "validation", "test": "test"}


def cohort(material: Material) -> dict[str, Any]:
    """Outcome, sites, sizes, and the notes of the run, except those that other tabs show."""
    run = material.run
    checked = {check.sentence for check in checks(material)}
    columns, titles = [], column_titles(map(str, run.cohort.columns))
    for name, values in ((str(name), values) for name, values in run.cohort.items()):
        known = values[values != ""]
        frequent = counted(known, 3) if known.nunique() <= 60 else f"e.g. {known.iloc[0]}"
        columns.append([name, titles[name], len(known), known.nunique(), frequent])
    return {
        "outcome": OUTCOME_FIGURES[run.kind](run, cohorts_of(run)),
        "sites": _sites(run),
        "sizes": _sizes(run),
        "notes": [
            note
            for note in run.record["notes"]
            if note not in checked and not note.startswith(f"The reference {COVARIATES} ")
        ],
        "columns": columns,
    }


def count_tiles(run: Run) -> dict[str, str]:
    """Numbers of patients, slides, patches, outcomes and sites."""
    table = run.cohort
    external = {p for name, ids in cohorts_of(run).items() if name != "study" for p in run.patients(ids)}
    tiles = {
        f"patients ({len(external):,} external)" if external else "patients": f"{table['patient'].nunique():,}",
        "slides": f"{pd.to_numeric(table['n_slides']).sum():,.0f}",
    }
    for name in (c for c in table.columns if c == "patches" or c.startswith("patches_")):
        tiles[name.replace("_", ", ")] = f"{pd.to_numeric(table[name], errors='coerce').sum():,.0f}"
    tiles |= dict([outcome_of(run).tile])
    sites = table.loc[table["site"] != "", "site"].nunique()
    return tiles | ({"sites": f"{sites:,}"} if sites else {})


def _count_figure(
    key: str, counts: Mapping[str, Sequence[int]], groups: list[str], counted: str, caption: str
) -> Figure:
    """Stacked bars of the counts of each group, by the name of the bar."""
    cells = (", ".join(f"{name} {n}" for name, n in zip(groups, row, strict=True)) for row in counts.values())
    numbers = "; ".join(f"{name}: {cell}" for name, cell in zip(counts, cells, strict=True))
    return Figure(key, stacked(list(counts), groups, np.array(list(counts.values())), counted), caption, numbers)


def _classes(run: Run, groups: dict[str, list[str]]) -> Figure:
    outcome = outcome_of(run)
    counts = {name: outcome.counts(ids) for name, ids in groups.items()}
    return _count_figure("classes", counts, outcome.groups, "samples", "Samples by class.")


def _values(run: Run, groups: dict[str, list[str]]) -> Figure:
    name = str(run.study.task.value)
    spans = {cohort: map(short, np.quantile(observed(run, ids), [0, 0.5, 1])) for cohort, ids in groups.items()}
    text = "; ".join(f"{cohort} {low} to {high}, median {middle}" for cohort, (low, middle, high) in spans.items())
    return Figure("values", histogram(observed(run), name), f"Distribution of {name}: {text}.")


def _labels(run: Run, groups: dict[str, list[str]]) -> Figure:
    values = {name: has_label(run, name) for name in run.study.task.labels or ()}
    counts = {name: [int(n.sum()) for n in (v == 1, v == 0, np.isnan(v))] for name, v in values.items()}
    return _count_figure("labels", counts, ["with", "without", "unknown"], "samples", "Samples by label.")


def _follow_up(run: Run, groups: dict[str, list[str]]) -> Figure:
    curves = {}
    for name, ids in groups.items():
        time, event = pd.to_numeric(run.cohort.loc[ids, "time"]), run.cohort.loc[ids, "event"] == "1"
        title = f"{name} (n = {len(ids)}, {int(event.sum())} events)"
        curves[title] = kaplan_meier(time.to_numpy(float), event.to_numpy())
    text = "Kaplan-Meier estimate, 95 % bands"
    return Figure("follow-up", survival_curves(curves, run.time_unit, run.endpoint), text, ", ".join(curves))


OUTCOME_FIGURES = {"classification": _classes, "survival": _follow_up, "regression": _values, "labels": _labels}


def _sites(run: Run) -> Figure | None:
    known = run.cohort[run.cohort["site"] != ""]
    if known.empty:
        return None
    order = known["site"].value_counts().sort_index().sort_values(ascending=False, kind="stable").index.tolist()
    outcome, shown = outcome_of(run), order[:MOST_SITES]
    counts = {site: outcome.counts(known.index[known["site"] == site]) for site in shown}
    more = f" The largest {MOST_SITES} of {len(order)} are shown." if len(order) > MOST_SITES else ""
    return _count_figure("sites", counts, outcome.groups, outcome.counted, f"{plural(len(order), 'site')}.{more}")


def _sizes(run: Run) -> Figure | None:
    column = next((c for c in run.cohort.columns if c == "patches" or c.startswith("patches_")), None)
    if column is None:
        return None
    patches = pd.to_numeric(run.cohort[column], errors="coerce").dropna().to_numpy()
    text = f"Patches per sample: median {np.median(patches):,.0f}, from {patches.min():,.0f} to {patches.max():,.0f}."
    return Figure("patches", histogram(patches, "patches per sample"), text)


def splits(material: Material) -> dict[str, Any]:
    """Sizes and balance of folds; overlaps are counted from the lists of samples."""
    run, outcome = material.run, outcome_of(material.run)
    spec, site = run.study.splits, run.cohort["site"]
    rows, balance = [], {}
    for fold, parts in enumerate(run.folds, 1):
        for part, ids in parts.items():
            name, counts = f"fold {fold}, {PARTS.get(part, part_name(part))}", outcome.counts(ids)
            rows.append([name, len(ids), len(run.patients(ids)), *counts, len(set(site.loc[ids]) - {""})])
            if part in ("train", "test"):
                balance[name] = counts
    names, sites = sorted(set(site) - {""}), None
    if 0 < len(names) <= MOST_FOLD_SITES:
        tests = {f"fold {fold}": site.loc[parts.get("test", [])] for fold, parts in enumerate(run.folds, 1)}
        in_folds = {name: [int((tested == name).sum()) for tested in tests.values()] for name in names}
        text = "Test samples by site and fold."
        sites = _count_figure("sites-in-folds", in_folds, list(tests), "test samples", text)
    shared = overlaps(run)
    return {
        "column": spec.column if isinstance(spec, ColumnSplits) else "",
        "files": spec.name if isinstance(spec, Path) else "",
        "spec": spec,
        "overlaps": shared,
        "clean": all(one.tested and not one.patients and not one.seen for one in shared),
        "balance": _count_figure("balance", balance, outcome.groups, outcome.counted, "Outcome by part."),
        "sites": sites,
        "header": ["part", "samples", "patients", *outcome.groups, "sites"],
        "parts": rows,
    }


def reproduce(material: Material) -> dict[str, Any]:
    """Settings, versions, and hashes of files."""
    run = material.run
    study = run.study.model_dump(mode="json", exclude_defaults=True) | {"seeds": run.study.seeds}
    files = run.trained.reindex(columns=["row", "seed", "fold", "prototypes", "embeddings", "model", "predictions"])
    return {
        "settings": yaml.safe_dump(study, sort_keys=False, allow_unicode=True),
        "versions": {"panther-wsi": run.record["version"], "python": run.record["python"], **run.record["packages"]},
        "files": files.to_dict("records"),
    }

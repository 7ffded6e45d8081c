r"""Survival by how much of each prototype a patient has: Kaplan-Meier curves of tertiles of :math:`\pi_c`, log-rank tests, Holm's correction."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from panther.charts.chart import Chart
from panther.charts.style import BLUE, ORANGE, save, short
from panther.charts.survival import Look, panel, survival_curves
from panther.charts.to_matplotlib import draw
from panther.cohort.load import Cohort
from panther.cohort.targets import Survival
from panther.errors import InputError
from panther.evaluation.correction import holm
from panther.evaluation.survival_metrics import (
    KaplanMeier,
    kaplan_meier,
    log_rank,
    risk_groups,
    round_times,
)
from panther.explain.names import label
from panther.explain.pooling import pooled
from panther.storage.embeddings import read_weights
from panther.storage.files import write_json
from panther.storage.tables import read_csv, write_spreadsheet

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

FORMAT = 1
GROUPS = ("low", "middle", "high")
LOOKS: dict[str, Look] = {"low": (BLUE, "solid"), "middle": ("#999999", "dot"), "high": (ORANGE, "dash")}
SAME = 1e-6  # proportions that differ by less are the same: one patch in a million
FEW = 10  # events below which curves are hardly worth a look


class Proportions(NamedTuple):
    """Prototype proportions of slides, or of patients."""

    samples: list[str]
    pi: np.ndarray  # (n, C)
    patches: np.ndarray | None  # (n,), None: not known


class Patients(NamedTuple):
    """Proportions and survival, one row a patient."""

    ids: tuple[str, ...]
    pi: np.ndarray  # (n, C)
    survival: Survival
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Group:
    """Patients of one tertile."""

    name: str
    n: int
    events: int
    largest: float  # proportion in this group
    curve: KaplanMeier


@dataclass(frozen=True)
class Compared:
    """One prototype: its groups, and whether their survival differs."""

    prototype: int
    groups: tuple[Group, ...]
    statistic: float
    p: float
    p_corrected: float = np.nan


def read_proportions(path: Path) -> Proportions:
    """Proportions of `panther embed` (.h5ad, .npz) or of the atlas (pi.csv: slide, patient, n_patches, C0, C1, ...)."""
    if path.suffix.lower() == ".csv":
        return _from_csv(path)
    samples, pi, columns = read_weights(path, "n_patches")
    return Proportions(samples, pi.astype(np.float64), np.array(columns["n_patches"], float))


def _from_csv(path: Path) -> Proportions:
    import pandas as pd

    try:
        table = read_csv(path, words=("slide", "patient"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read as a table of proportions ({error}).") from error
    wanted = [f"C{c}" for c in range(sum(bool(re.fullmatch(r"C\d+", str(name))) for name in table.columns))]
    if "slide" not in table.columns or not wanted or not set(wanted) <= set(table.columns):
        raise InputError(
            f"{path}: has the columns {', '.join(map(str, table.columns))}; expected are slide, C0, C1, ... as `panther atlas` writes pi.csv."
        )
    pi = table[wanted].apply(pd.to_numeric, errors="coerce").to_numpy(np.float64)
    bad = np.flatnonzero(~np.isfinite(pi).all(1) | (pi < -SAME).any(1) | (pi > 1 + SAME).any(1))
    if len(bad):
        raise InputError(f"{path}: line {bad[0] + 2} holds a proportion that is no number from 0 to 1; mend it.")
    samples = table["slide"].astype(str)
    if samples.duplicated().any():
        raise InputError(
            f"{path}: the slide {samples[samples.duplicated()].iloc[0]} is there more than once; keep one row a slide."
        )
    known = next((name for name in ("n_patches", "patches") if name in table.columns), None)
    return Proportions(samples.tolist(), pi, None if known is None else _patches(path, table[known]))


def _patches(path: Path, column: "pd.Series") -> np.ndarray:
    import pandas as pd

    patches = pd.to_numeric(column, errors="coerce").to_numpy(np.float64)
    bad = np.flatnonzero(~(np.isfinite(patches) & (patches > 0)))
    if len(bad):
        raise InputError(
            f"{path}: line {bad[0] + 2} has no number of patches above 0 in {column.name}; mend it, or drop the column."
        )
    return patches


def by_patient(found: Proportions, cohort: Cohort) -> Patients:
    """Proportions of each patient of the cohort: the mean over its slides, weighted by their patches where those are known."""
    where = {sample: row for row, sample in enumerate(found.samples)}
    rows, kept, missing = [], [], []
    for number, sample in enumerate(cohort.samples):
        own = [where[slide] for slide in sample.slides if slide in where] or [
            where[s] for s in (sample.id,) if s in where
        ]
        if own:
            weights = np.ones(len(own)) if found.patches is None else found.patches[own]
            rows.append(pooled(found.pi[own], weights))
            kept.append(number)
        else:
            missing.append(sample.id)
    if not rows:
        raise InputError(
            f"{cohort.report.source}: none of its {len(cohort)} patients has proportions: the table says e.g. {cohort.samples[0].slides[0]!r}, "
            f"the proportions {found.samples[0]!r}."
        )
    notes = list(cohort.report.notes)
    if missing:
        notes.append(f"{len(missing)} patients have no proportions and are left out, e.g. {missing[0]}.")
    if found.patches is None and len(rows) < len(found.samples):
        notes.append("The numbers of patches are not known, so the slides of a patient count alike.")
    survival = cohort.target.take(np.array(kept))
    assert isinstance(survival, Survival)
    return Patients(tuple(cohort.ids[k] for k in kept), np.stack(rows), survival, tuple(notes))


def compare(patients: Patients) -> tuple[list[Compared], list[str]]:
    """Curves and tests of every prototype, and sentences about those that are left out or should be read with care.

    Tertiles are cut at the 1/3 and 2/3 quantiles; who lies on a cut belongs to the lower group, so equal patients are never parted.
    """
    found, notes = [], []
    for c, exact in enumerate(patients.pi.T):
        pi = np.round(exact / SAME) * SAME  # or 1e-15 of an absent prototype would be more of it than 1e-23
        member = risk_groups(pi, pi, len(GROUPS))
        if len(np.unique(member)) < 2:
            notes.append(
                f"C{c}: its proportion is the same in (nearly) all {len(pi)} patients, so there is nothing to compare."
            )
            continue
        if len(np.unique(member)) < len(GROUPS):
            notes.append(f"C{c}: too many patients have equal proportions for three groups; there are two.")
        test = log_rank(patients.survival.time, patients.survival.event, member)
        groups = tuple(_group(k, pi, member == k, patients.survival) for k in np.unique(member).tolist())
        found.append(Compared(c, groups, test.statistic, test.p_value))
    if not found:
        raise InputError(
            f"No prototype's proportion differs between the {len(patients.ids)} patients, so no groups can be made; "
            "give more patients, or embed with other prototypes."
        )
    events = int(patients.survival.event.sum())
    if events < FEW:
        notes.append(f"There are only {events} events; these curves are too uncertain to mean much.")
    corrected = holm([one.p for one in found])
    return [
        Compared(one.prototype, one.groups, one.statistic, one.p, p) for one, p in zip(found, corrected, strict=True)
    ], notes


def _group(number: int, pi: np.ndarray, inside: np.ndarray, survival: Survival) -> Group:
    time, event = survival.time[inside], survival.event[inside]
    return Group(
        GROUPS[number], int(inside.sum()), int(event.sum()), float(pi[inside].max()), kaplan_meier(time, event)
    )


def write_curves(found: Sequence[Compared], names: Mapping[int, str], notes: Sequence[str], folder: Path) -> list[Path]:
    """Write `km.json`, `km.csv` (one row a group) and `km.png`."""
    files = [folder / "km.json", folder / "km.csv", folder / "km.png"]
    prototypes = [described(one, names) for one in found]
    test = "log-rank, Holm-corrected"
    write_json(files[0], {"format": FORMAT, "test": test, "prototypes": prototypes, "notes": list(notes)})
    header = ("prototype", "name", "group", "n", "events", "largest_pi", "median", "statistic", "p", "p_corrected")
    rows = [
        (one.prototype, names.get(one.prototype, ""), g.name, g.n, g.events, g.largest, _median(g), one.statistic, one.p, one.p_corrected)
        for one in found
        for g in one.groups
    ]  # fmt: skip
    write_spreadsheet(files[1], header, rows)
    save(draw_curves(prototypes), files[2], dpi=120)
    return files


def _median(group: Group) -> float | str:
    return group.curve.median if np.isfinite(group.curve.median) else ""  # not reached


def described(one: Compared, names: Mapping[int, str]) -> dict[str, Any]:
    """One prototype in plain values, as `km.json` has it."""
    about = {"prototype": one.prototype, "name": names.get(one.prototype), "statistic": one.statistic}
    groups = [
        {"group": group.name, "n": group.n, "events": group.events, "largest_pi": group.largest}
        | {name: values.tolist() for name, values in _curve(group).items()}
        for group in one.groups
    ]
    return {**about, "p": one.p, "p_corrected": one.p_corrected, "groups": groups}


def _curve(group: Group) -> dict[str, np.ndarray]:
    """Curve from time 0 on, where all are alive."""
    curve = group.curve
    start = {"time": 0.0, "survival": 1.0, "low": 1.0, "high": 1.0}
    shown = {name: np.concatenate([[first], getattr(curve, name)]) for name, first in start.items()}
    return shown | {"at_risk": np.append(group.n, curve.at_risk), "events_at": np.append(0, curve.events)}


def curve_chart(row: Mapping[str, Any], unit: str, title: str, ticks: Sequence[float] | None = None) -> Chart:
    """Curves of one prototype's groups, from its row of `km.json`."""
    groups = [group for group in row["groups"] if group.get("time")]
    curves = {f"{g['group']} π (n = {g['n']}, {g['events']} events)": _read_curve(g) for g in groups}
    return survival_curves(curves, unit, title, [LOOKS[g["group"]] for g in groups], ticks)


def _read_curve(group: Mapping[str, Any]) -> KaplanMeier:
    time, survival = (np.array(group[key], float) for key in ("time", "survival"))
    low, high = (np.array(group.get(key) or group["survival"], float) for key in ("low", "high"))
    unknown = [0] * len(time)  # files of an earlier version do not say
    at_risk, events = (np.array(group.get(key) or unknown, np.int64) for key in ("at_risk", "events_at"))
    return KaplanMeier(time, at_risk, events, survival, low, high)


def draw_curves(rows: Sequence[Mapping[str, Any]]) -> "Figure":
    """Small curves, one panel per row of `km.json`, in their order; returns a matplotlib figure."""
    ticks = round_times(max(group["time"][-1] for row in rows for group in row["groups"]), most=5)
    panels = [
        panel(
            curve_chart(row, "", "", ticks),
            short(label(row["prototype"], {row["prototype"]: row["name"]} if row["name"] else {}), 34),
            f"log-rank p {row['p']:.2g}, corrected {row['p_corrected']:.2g}",
        )
        for row in rows
    ]
    columns = min(4, len(panels))
    grid = [panels[start : start + columns] for start in range(0, len(panels), columns)]
    captions = "time, in the table's unit; above: patients still at risk", "survival (95 % limits)"
    return draw(grid, size=(330 * columns + 40, 330 * len(grid) + 30), shared=True, captions=captions)

r"""Survival by how much of each prototype a patient has: Kaplan-Meier curves of tertiles of :math:`\pi_c`, log-rank tests, Holm's correction."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from panther.charts.chart import Chart
from panther.charts.style import BLUE, ORANGE, save, short
from panther.charts.survival import Look, panel, survival_curves, with_unit
from panther.charts.to_matplotlib import draw
from panther.cohort.load import Cohort, load_cohort
from panther.cohort.targets import Survival
from panther.errors import InputError
from panther.evaluation import survival_metrics
from panther.evaluation.intervals import holm
from panther.evaluation.survival_metrics import KaplanMeier, log_rank, risk_groups, round_times
from panther.explain.names import Names, as_names, label
from panther.explain.shares import SAME, Proportions, as_proportions, pooled
from panther.storage.clinical import USUAL, Columns
from panther.storage.embeddings import EmbeddingTable
from panther.storage.files import write_json
from panther.storage.tables import write_spreadsheet
from panther.store import check_output_folder

if TYPE_CHECKING:
    import anndata
    import pandas as pd
    from matplotlib.figure import Figure

FORMAT = 1
WRITTEN = ("km.json", "km.csv", "km.png")
HEADER = ("prototype", "name", "group", "n", "events", "largest_pi", "median", "statistic", "p", "p_corrected")
GROUPS = ("low", "middle", "high")
LOOKS: dict[str, Look] = {"low": (BLUE, "solid"), "middle": ("#999999", "dot"), "high": (ORANGE, "dash")}
FEW = 10  # events below which curves are hardly worth a look


class Patients(NamedTuple):
    """Proportions and survival, one row per patient."""

    ids: tuple[str, ...]
    pi: np.ndarray  # (n, C)
    survival: Survival
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Tertile:
    """Patients of one tertile."""

    name: str
    n: int
    events: int
    largest: float  # proportion in this group
    curve: KaplanMeier


@dataclass(frozen=True)
class PrototypeSurvival:
    """One prototype: its groups, and whether their survival differs."""

    prototype: int
    groups: tuple[Tertile, ...]
    statistic: float
    p: float
    p_corrected: float = np.nan


@dataclass(frozen=True, eq=False)
class SurvivalByPrototype:
    """Curves and tests of every prototype, as `kaplan_meier` returns them."""

    prototypes: tuple[PrototypeSurvival, ...]
    patients: tuple[str, ...]
    events: int
    names: Mapping[int, str]
    cohort: tuple[str, ...] = ()  # sentences about the table: its columns, and who was left out
    notes: tuple[str, ...] = ()
    unit: str = ""  # of times, where the name of their column says it
    files: tuple[Path, ...] = ()  # that were written

    def to_frame(self) -> "pd.DataFrame":
        """Table with one row per prototype and group."""
        import pandas as pd

        return pd.DataFrame(_rows(self.prototypes, self.names), columns=list(HEADER))

    def figure(self) -> "Figure":
        """Draw the curves, one panel per prototype."""
        return draw_curves([described(one, self.names) for one in self.prototypes], self.unit)


def kaplan_meier(
    proportions: "Path | str | pd.DataFrame | EmbeddingTable | anndata.AnnData",
    table: "Path | str | pd.DataFrame",
    survival: str | None = None,
    *,
    time: str | None = None,
    event: str | None = None,
    censorship: str | None = None,
    columns: Columns = USUAL,
    names: Names = None,
    output: Path | str | None = None,
) -> SurvivalByPrototype:
    """Compare the survival of patients with little, some and much of each prototype.

    Parameters
    ----------
    proportions : path, DataFrame, EmbeddingTable or AnnData
        How much of each prototype every slide has: embeddings of `embed_cohort` or their file, `pi.csv` of an atlas, or a data frame
        with the columns C0, C1, ... and the slides in the column `slide` or in the index.
    table : path or DataFrame
        Clinical table, one row per slide.
    survival : str, optional
        Endpoint os, dss, dfi or pfi; or name its columns.
    time, event, censorship : str, optional
        Columns of the time, and of 1 = event or 1 = censored.
    columns : Columns
        Names of the table's slide and patient columns, where they are not the usual ones.
    names : path or mapping, optional
        Names of the prototypes.
    output : folder, optional
        Where `km.json`, `km.csv` and `km.png` are written.

    Returns
    -------
    SurvivalByPrototype
        Curves of the tertiles of each proportion, log-rank tests with Holm's correction, ``to_frame()`` and ``figure()``.

    Examples
    --------
    >>> import numpy as np, pandas as pd, panther
    >>> slides, pi = [f"s{i}" for i in range(30)], np.random.default_rng(0).dirichlet(np.ones(3), 30)
    >>> proportions = pd.DataFrame(pi, index=slides, columns=["C0", "C1", "C2"])
    >>> table = pd.DataFrame({"slide_id": slides, "os_survival_days": range(1, 31), "os_censorship": [0, 1] * 15})
    >>> found = panther.kaplan_meier(proportions, table, "os")
    >>> found.events, len(found.to_frame())
    (15, 9)
    """
    if not any((survival, time, event, censorship)):
        raise InputError("Give the endpoint with `survival=`, or its columns with `time=` and `event=`.")
    pi = as_proportions(proportions)
    named = as_names(names, pi.pi.shape[1])
    if output is not None:
        check_output_folder(Path(output), WRITTEN, proportions, table, names)
    cohort = load_cohort(table, survival=survival, time=time, event=event, censorship=censorship, columns=columns)
    patients = by_patient(pi, cohort)
    found, notes = compare(patients)
    told, notes = cohort.report.sentences(), [*patients.notes, *notes]
    unit = patients.survival.unit or ""
    files = [] if output is None else write_curves(found, named, [*told, *notes], Path(output), unit)
    events = int(patients.survival.event.sum())
    return SurvivalByPrototype(tuple(found), patients.ids, events, named, tuple(told), tuple(notes), unit, tuple(files))


def by_patient(proportions: Proportions, cohort: Cohort) -> Patients:
    """Proportions of each patient of the cohort: the mean over its slides, weighted by their patches where those are known."""
    where = {sample: row for row, sample in enumerate(proportions.samples)}
    rows, kept, missing = [], [], []
    for number, sample in enumerate(cohort.samples):
        own = [where[slide] for slide in sample.slides if slide in where] or [
            where[s] for s in (sample.id,) if s in where
        ]
        if own:
            weights = np.ones(len(own)) if proportions.patches is None else proportions.patches[own]
            rows.append(pooled(proportions.pi[own], weights))
            kept.append(number)
        else:
            missing.append(sample.id)
    if not rows:
        raise InputError(
            f"{cohort.report.source}: none of its {len(cohort)} patients has proportions: the table says e.g. {cohort.samples[0].slides[0]!r}, "
            f"the proportions {proportions.samples[0]!r}."
        )
    notes = []
    if missing:
        notes.append(f"{len(missing)} patients have no proportions and are left out, e.g. {missing[0]}.")
    if proportions.patches is None and len(rows) < len(proportions.samples):
        notes.append("The numbers of patches are not known, so the slides of a patient count alike.")
    survival = cohort.target.take(np.array(kept))
    assert isinstance(survival, Survival)
    return Patients(tuple(cohort.ids[k] for k in kept), np.stack(rows), survival, tuple(notes))


def compare(patients: Patients) -> tuple[list[PrototypeSurvival], list[str]]:
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
        found.append(PrototypeSurvival(c, groups, test.statistic, test.p_value))
    if not found:
        raise InputError(
            f"No prototype's proportion differs between the {len(patients.ids)} patients, so no groups can be made; "
            "give more patients, or embed with other prototypes."
        )
    events = int(patients.survival.event.sum())
    if events < FEW:
        notes.append(f"There are only {events} events; these curves are too uncertain to mean much.")
    corrected = holm([one.p for one in found])
    return [replace(one, p_corrected=p) for one, p in zip(found, corrected, strict=True)], notes


def _group(number: int, pi: np.ndarray, inside: np.ndarray, survival: Survival) -> Tertile:
    time, event = survival.time[inside], survival.event[inside]
    curve = survival_metrics.kaplan_meier(time, event)
    return Tertile(GROUPS[number], len(time), int(event.sum()), float(pi[inside].max()), curve)


def write_curves(
    curves: Sequence[PrototypeSurvival], names: Mapping[int, str], notes: Sequence[str], folder: Path, unit: str = ""
) -> list[Path]:
    """Write `km.json`, `km.csv` (one row per group) and `km.png`."""
    files = [folder / name for name in WRITTEN]
    prototypes = [described(one, names) for one in curves]
    about = {"format": FORMAT, "test": "log-rank, Holm-corrected", "time_unit": unit or None}
    write_json(files[0], {**about, "prototypes": prototypes, "notes": list(notes)})
    write_spreadsheet(files[1], HEADER, _rows(curves, names))
    save(draw_curves(prototypes, unit), files[2], dpi=120)
    return files


def _rows(curves: Sequence[PrototypeSurvival], names: Mapping[int, str]) -> list[tuple[Any, ...]]:
    """One row per group."""
    return [
        (one.prototype, names.get(one.prototype, ""), g.name, g.n, g.events, g.largest, _median(g), one.statistic, one.p, one.p_corrected)
        for one in curves
        for g in one.groups
    ]  # fmt: skip


def _median(group: Tertile) -> float | str:
    return group.curve.median if np.isfinite(group.curve.median) else ""  # not reached


def described(one: PrototypeSurvival, names: Mapping[int, str]) -> dict[str, Any]:
    """One prototype in plain values, as `km.json` has it."""
    about = {"prototype": one.prototype, "name": names.get(one.prototype), "statistic": one.statistic}
    groups = [
        {"group": group.name, "n": group.n, "events": group.events, "largest_pi": group.largest}
        | {name: values.tolist() for name, values in _curve(group).items()}
        for group in one.groups
    ]
    return {**about, "p": one.p, "p_corrected": one.p_corrected, "groups": groups}


def _curve(group: Tertile) -> dict[str, np.ndarray]:
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
    time, survival, low, high = (np.array(group[key], float) for key in ("time", "survival", "low", "high"))
    at_risk, events = (np.array(group[key], np.int64) for key in ("at_risk", "events_at"))
    return KaplanMeier(time, at_risk, events, survival, low, high)


def draw_curves(rows: Sequence[Mapping[str, Any]], unit: str = "") -> "Figure":
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
    captions = f"{with_unit('time', unit)}; above: patients still at risk", "survival (95 % limits)"
    return draw(grid, size=(330 * columns + 40, 330 * len(grid) + 30), shared=True, captions=captions)

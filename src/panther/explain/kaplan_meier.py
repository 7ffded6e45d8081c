r"""Survival by the share of each prototype: Kaplan-Meier curves of tertiles of :math:`\pi_c`, log-rank tests, Holm's correction."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from panther.charts.chart import Chart
from panther.charts.results import Look, panel, survival_curves, with_unit
from panther.charts.style import BLUE, ORANGE, save, short
from panther.charts.to_matplotlib import draw
from panther.cohort.load import Cohort
from panther.cohort.targets import Survival
from panther.errors import InputError
from panther.evaluation.intervals import holm
from panther.evaluation.survival_metrics import KaplanMeier, kaplan_meier, log_rank, risk_groups, round_times
from panther.explain.names import label
from panther.explain.shares import SAME, Proportions, pooled
from panther.storage.files import write_json
from panther.storage.tables import write_spreadsheet

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

FORMAT = 1
WRITTEN = ("km.json", "km.csv", "km.png")
GROUPS = ("low", "middle", "high")
LOOKS: dict[str, Look] = {"low": (BLUE, "solid"), "middle": ("#999999", "dot"), "high": (ORANGE, "dash")}
FEW = 10  # events below which a note is due


class Patients(NamedTuple):
    """Proportions and survival, one row per patient."""

    ids: tuple[str, ...]
    pi: np.ndarray  # (n, C)
    survival: Survival
    notes: tuple[str, ...]


Row = Mapping[str, Any]  # of a prototype in `km.json`: its tests, and the curve and the counts of each group


@dataclass(frozen=True, eq=False)
class SurvivalByPrototype:
    """Curves and tests of every prototype, as `panther.kaplan_meier` returns them."""

    prototypes: tuple[Row, ...]
    patients: tuple[str, ...]
    events: int
    notes: tuple[str, ...] = ()
    unit: str = ""  # of times, from the name of their column
    cohort: tuple[str, ...] = ()  # sentences about the table: its columns, and patients left out
    files: tuple[Path, ...] = ()  # that were written

    def to_frame(self) -> "pd.DataFrame":
        """Table with one row per prototype and group."""
        import pandas as pd

        rows: list[dict[str, Any]] = []
        for row in self.prototypes:
            tests = {key: row[key] for key in ("statistic", "p", "p_corrected")}
            for group in row["groups"]:
                counts = {key: group[key] for key in ("group", "n", "events", "largest_pi")}
                median = _curve(group).median
                median_text = median if np.isfinite(median) else ""  # not reached
                about = {"prototype": row["prototype"], "name": row["name"] or ""}
                rows.append({**about, **counts, "median": median_text, **tests})
        return pd.DataFrame(rows).astype({"median": object})

    def figure(self) -> "Figure":
        """Draw the curves, one panel per prototype."""
        return draw_curves(self.prototypes, self.unit)

    def to_lines(self) -> list[str]:
        """The cohort, and the prototypes of the smallest p-values."""
        size = f"{len(self.patients)} patients, {self.events} events, {len(self.prototypes)} prototypes compared"
        smallest = sorted(self.prototypes, key=lambda row: row["p"])[:5]
        rows = [f"  {_title(row)}: p {row['p']:.3g}, corrected {row['p_corrected']:.3g}" for row in smallest]
        return [*self.cohort, size, *rows]

    def to_json(self) -> dict[str, Any]:
        """Tests, cohort and files as plain values."""
        rows = [{key: row[key] for key in ("prototype", "p", "p_corrected")} for row in self.prototypes]
        counts = {"patients": len(self.patients), "events": self.events, "prototypes": rows}
        return {**counts, "cohort": list(self.cohort), "files": [str(file) for file in self.files]}


def by_patient(proportions: Proportions, cohort: Cohort) -> Patients:
    """Proportions of each patient of the cohort: the mean over its slides, weighted by their numbers of patches where known."""
    row_of = {sample: row for row, sample in enumerate(proportions.samples)}
    patches = np.ones(len(row_of)) if proportions.patches is None else proportions.patches
    pi: dict[int, np.ndarray] = {}
    for number, sample in enumerate(cohort.samples):
        rows = [row_of[slide] for slide in sample.slides if slide in row_of]
        if not rows and sample.id in row_of:  # embeddings of patients have the patient's name
            rows = [row_of[sample.id]]
        if rows:
            pi[number] = pooled(proportions.pi[rows], patches[rows])
    if not pi:
        raise InputError(
            f"{cohort.report.source}: none of its {len(cohort)} patients has proportions; its slides are e.g. "
            f"{cohort.samples[0].slides[0]!r}, those of the proportions {proportions.samples[0]!r}"
        )
    notes = []
    if missing := [sample.id for number, sample in enumerate(cohort.samples) if number not in pi]:
        notes.append(f"{len(missing)} patients have no proportions and are left out, e.g. {missing[0]}.")
    if proportions.patches is None and len(pi) < len(proportions.samples):
        notes.append("The numbers of patches are not known, so the slides of a patient have equal weights.")
    survival = cohort.target.take(np.array(list(pi)))
    assert isinstance(survival, Survival)
    return Patients(tuple(cohort.ids[number] for number in pi), np.stack(list(pi.values())), survival, tuple(notes))


def compare(patients: Patients, names: Mapping[int, str] | None = None) -> SurvivalByPrototype:
    """Curves and tests of every prototype, with notes about those that are left out or should be read with care.

    Tertiles are cut at the 1/3 and 2/3 quantiles; a patient on a cut belongs to the lower group, so patients with equal shares stay together.
    """
    time, event = patients.survival.time, patients.survival.event
    rows: list[dict[str, Any]] = []
    notes = [*patients.notes]
    for c, exact in enumerate(patients.pi.T):
        pi = np.round(exact / SAME) * SAME  # or 1e-15 of an absent prototype would be more of it than 1e-23
        member = risk_groups(pi, pi, len(GROUPS))
        groups = [_group(GROUPS[k], time[member == k], event[member == k], pi[member == k]) for k in np.unique(member)]
        if len(groups) == 1:
            notes.append(f"C{c}: its proportion is the same in (nearly) all {len(pi)} patients; nothing to compare.")
            continue
        if len(groups) == 2:
            notes.append(f"C{c}: too many patients have equal proportions for three groups; there are two.")
        test = log_rank(time, event, member)
        about = {"prototype": c, "name": (names or {}).get(c), "statistic": test.statistic}
        rows.append({**about, "p": test.p_value, "p_corrected": np.nan, "groups": groups})
    if not rows:
        raise InputError(f"proportions: none differs between the {len(patients.ids)} patients, expected more patients")
    if event.sum() < FEW:
        notes.append(f"There are only {int(event.sum())} events; these curves are too uncertain to mean much.")
    for row, p in zip(rows, holm([row["p"] for row in rows]), strict=True):
        row["p_corrected"] = p
    return SurvivalByPrototype(tuple(rows), patients.ids, int(event.sum()), tuple(notes), patients.survival.unit or "")


def _group(name: str, time: np.ndarray, event: np.ndarray, pi: np.ndarray) -> dict[str, Any]:
    """Counts and curve of one group; the curve begins at time 0, where all are alive."""
    curve, start = kaplan_meier(time, event), {"time": 0.0, "survival": 1.0, "low": 1.0, "high": 1.0}
    return {
        **{"group": name, "n": len(pi), "events": int(event.sum()), "largest_pi": float(pi.max())},
        **{key: [first, *getattr(curve, key).tolist()] for key, first in start.items()},
        **{"at_risk": [len(pi), *curve.at_risk.tolist()], "events_at": [0, *curve.events.tolist()]},
    }


def _curve(group: Mapping[str, Any]) -> KaplanMeier:
    keys = ("time", "at_risk", "events_at", "survival", "low", "high")
    return KaplanMeier(*(np.array(group[key]) for key in keys))


def write_curves(result: SurvivalByPrototype, folder: Path) -> list[Path]:
    """Write `km.json`, `km.csv` (one row per group) and `km.png`."""
    files = [folder / name for name in WRITTEN]
    about = {"format": FORMAT, "test": "log-rank, Holm-corrected", "time_unit": result.unit or None}
    write_json(files[0], {**about, "prototypes": result.prototypes, "notes": [*result.cohort, *result.notes]})
    rows = result.to_frame()
    write_spreadsheet(files[1], list(map(str, rows)), rows.itertuples(index=False, name=None))
    save(result.figure(), files[2], dpi=120)
    return files


def _title(row: Row) -> str:
    return label(row["prototype"], {row["prototype"]: row["name"]} if row["name"] else {})


def curve_chart(row: Row, unit: str, title: str, ticks: Sequence[float] | None = None) -> Chart:
    """Curves of one prototype's groups, from its row of `km.json`."""
    groups = row["groups"]
    cuts = [f"{100 * group['largest_pi']:.1f} %" for group in groups[:-1]]  # of neighbouring groups
    shares = [f"up to {cuts[0]}", *(f"{low} to {high}" for low, high in pairwise(cuts)), f"above {cuts[-1]}"]
    curves = {
        f"{group['group']} π {share} (n = {group['n']}, {group['events']} events)": _curve(group)
        for group, share in zip(groups, shares, strict=True)
    }
    return survival_curves(curves, unit, title, [LOOKS[group["group"]] for group in groups], ticks)


def draw_curves(rows: Sequence[Row], unit: str = "") -> "Figure":
    """Small curves, one panel per row of `km.json`, in their order; returns a matplotlib figure."""
    ticks = round_times(max(group["time"][-1] for row in rows for group in row["groups"]), most=5)
    panels = [
        panel(
            curve_chart(row, "", "", ticks),
            short(_title(row), 34),
            f"log-rank p {row['p']:.2g}, corrected {row['p_corrected']:.2g}",
        )
        for row in rows
    ]
    columns = min(4, len(panels))
    grid = [panels[start : start + columns] for start in range(0, len(panels), columns)]
    captions = f"{with_unit('time', unit)}; above: patients still at risk", "survival (95 % limits)"
    return draw(grid, shared=True, captions=captions)

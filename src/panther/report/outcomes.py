"""What a study predicts, as a report speaks of it: groups that samples fall into, and words; one entry for each kind of target."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from panther.report.data import Run
from panther.report.html import words_of_list

QUARTERS = ("lowest quarter", "second quarter", "third quarter", "highest quarter")
FEW_EVENTS, FEW_OF_A_CLASS, FEW_VALUES = 10, 5, 10  # in a test part, below which a fold's number is mostly chance


@dataclass(frozen=True, eq=False)
class Outcome:
    """What is predicted of the samples of a study."""

    title: str  # of the report
    question: str  # the beginning of a sentence: Can ... be told from the tissue
    tile: tuple[str, str]  # what is counted, and how many
    member: pd.DataFrame  # (samples, groups), whether a sample is of a group
    few: int  # of the scarcest group in a test part, below which a fold's number is mostly chance
    scarce: str  # what is scarce then
    counted: str = "samples"  # what bars of groups count

    @property
    def groups(self) -> list[str]:
        """Names of the groups."""
        return list(self.member.columns)

    def counts(self, samples: Sequence[str]) -> list[int]:
        """How many samples are of each group."""
        return [int(n) for n in self.member.loc[list(samples)].sum()]

    def scarcest(self, samples: Sequence[str]) -> int:
        """How many of these samples are of the group that has fewest of them."""
        return min(self.counts(samples), default=0)


def outcome_of(run: Run) -> Outcome:
    """What is predicted in a run."""
    return OUTCOMES[run.kind](run)


def _classes(run: Run) -> Outcome:
    classes, label = run.classes or [], run.study.task.label
    member = pd.DataFrame({name: run.cohort["label"] == name for name in classes}, index=run.cohort.index)
    question = f"Can {label} ({', '.join(classes)}) be told from the tissue"
    what = "samples of its rarest class"
    return Outcome("Classification", question, ("classes", str(len(classes))), member, FEW_OF_A_CLASS, what)


def _survival(run: Run) -> Outcome:
    event = run.cohort["event"] == "1"
    member = pd.DataFrame({"censored": ~event, "event": event}, index=run.cohort.index)
    title = f"{run.endpoint[:1].upper()}{run.endpoint[1:]}"
    question = f"Can {run.endpoint} be predicted from the tissue"
    return _Events(title, question, ("events", f"{int(event.sum()):,}"), member, FEW_EVENTS, "events")


class _Events(Outcome):
    def scarcest(self, samples: Sequence[str]) -> int:
        """Events: those who are censored are no news."""
        return int(self.member.loc[list(samples), "event"].sum())


def _values(run: Run) -> Outcome:
    name, values = run.study.task.value, observed(run)
    edges = np.quantile(values, [0.25, 0.5, 0.75])
    quarter = np.searchsorted(edges, values, side="right")
    member = pd.DataFrame({q: quarter == k for k, q in enumerate(QUARTERS)}, index=run.cohort.index)
    span = f"{short(values.min())} to {short(values.max())}"
    question = f"Can {name} ({span}, median {short(edges[1])}) be predicted from the tissue"
    return _Numbers(
        f"Prediction of {name}", question, (f"median {name}", short(edges[1])), member, FEW_VALUES, "values"
    )


class _Numbers(Outcome):
    def scarcest(self, samples: Sequence[str]) -> int:
        """Values: every sample has one."""
        return len(samples)


def _labels(run: Run) -> Outcome:
    names = list(run.study.task.labels or ())
    member = pd.DataFrame({name: has_label(run, name) == 1 for name in names}, index=run.cohort.index)
    question = f"Can {words_of_list(names)} be told from the tissue"
    what = "samples with its rarest label"
    tile = ("labels", str(len(names)))
    return Outcome(
        f"Prediction of {len(names)} labels", question, tile, member, FEW_OF_A_CLASS, what, "samples with the label"
    )


OUTCOMES: dict[str, Callable[[Run], Outcome]] = {
    "classification": _classes,
    "survival": _survival,
    "regression": _values,
    "labels": _labels,
}


def short(value: float) -> str:
    """A measured number, as many digits as it needs: its scale is unknown."""
    return f"{value:,.4g}".replace("-", "\N{MINUS SIGN}")


def observed(run: Run, samples: Sequence[str] | None = None) -> np.ndarray:
    """Values that were measured (n,)."""
    column = run.cohort["value"] if samples is None else run.cohort["value"].loc[list(samples)]
    return pd.to_numeric(column).to_numpy(float)


def has_label(run: Run, name: str) -> np.ndarray:
    """1, 0, or NaN where it is not known (n,)."""
    return pd.to_numeric(run.cohort[f"label_{name}"].replace("", np.nan)).to_numpy(float)

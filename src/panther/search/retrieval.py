"""Do neighbours share a label? Acc@k, mMV@k and mAP@k of one or more representations, with intervals, chance and paired comparison."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from panther.cohort.load import make_cohort
from panther.cohort.spec import TaskSpec, checked
from panther.cohort.targets import Classes
from panther.errors import InputError, check_whole, plain
from panther.search.neighbours import EmbeddingsLike, Searchable, as_embeddings, groups, searchable
from panther.search.scores import AT, Queries, score, summarise
from panther.storage.clinical import USUAL, ClinicalTable, ColumnsLike, read_clinical
from panther.storage.embeddings import Embeddings
from panther.storage.names import without_suffix

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class LabelledSlides:
    """Slides, or patients where embeddings are of patients, in the order of their names."""

    ids: tuple[str, ...]
    patients: np.ndarray  # (n,)
    sites: tuple[str | None, ...]
    labels: np.ndarray  # (n,) 0, 1, ...
    classes: tuple[str, ...]
    notes: tuple[str, ...]

    def rows_of(self, one: Embeddings) -> Embeddings:
        """Rows of these slides, in this order."""
        named = {without_suffix(name): name for name in one.samples}
        return one.take([named[name] for name in self.ids])

    def take(self, rows: Sequence[int]) -> "LabelledSlides":
        """Some of the slides."""
        kept = list(rows)
        ids, sites = tuple(self.ids[row] for row in kept), tuple(self.sites[row] for row in kept)
        return replace(self, ids=ids, sites=sites, patients=self.patients[kept], labels=self.labels[kept])


def labelled_slides(
    opened: Mapping[str, Embeddings],
    table: "Path | str | pd.DataFrame | None",
    task: TaskSpec,
    columns: ColumnsLike,
    *,
    sites_needed: bool = False,
) -> LabelledSlides:
    """Slides (or patients) that all representations have and the table labels; without a table the embeddings' own columns are one."""
    clinical = read_clinical(_own_columns(next(iter(opened.values()))) if table is None else table, columns=columns)
    common = set.intersection(*({without_suffix(name) for name in one.samples} for one in opened.values()))
    if not common:
        raise InputError(f"No slide has all of the representations {', '.join(opened)}; their names differ.")
    by_patient = len(common & set(clinical.who.patient)) > len(common & set(clinical.who.slide))
    names = clinical.who.patient if by_patient else clinical.who.slide
    slides = [slide for slide, name in zip(clinical.who.slide, names, strict=True) if name in common]
    if not slides:
        raise InputError(
            f"{clinical.source}: names none of the slides that were embedded: the table says e.g. {names[0]!r}, "
            f"the embeddings {min(common)!r}."
        )
    cohort = make_cohort(clinical, task.model_copy(update={"level": "patient" if by_patient else "slide"}), slides)
    assert isinstance(cohort.target, Classes)
    notes = list(cohort.report.sentences())
    if len(opened) > 1:
        notes.append(f"{len(common)} slides have all {len(opened)} representations, and these are compared.")
    sites = tuple(sample.site for sample in cohort.samples)
    found = LabelledSlides(
        cohort.ids, cohort.patients.astype(str), sites, cohort.target.labels, tuple(cohort.target.names), tuple(notes)
    )
    found = _placed(found, clinical) if sites_needed else found
    _check_possible(found, clinical.source)
    return found


def _placed(found: LabelledSlides, clinical: ClinicalTable) -> LabelledSlides:
    """Slides whose site is known."""
    unknown = [name for name, site in zip(found.ids, found.sites, strict=True) if site is None]
    if len(unknown) == len(found.ids):
        raise InputError(
            f"{clinical.source}: says of no slide which site it is from, so sites cannot be left out; name the site column."
        )
    if not unknown:
        return found
    kept = found.take([row for row, site in enumerate(found.sites) if site is not None])
    return replace(
        kept, notes=(*kept.notes, f"{len(unknown)} slides are of an unknown site and are left out, e.g. {unknown[0]}.")
    )


def _check_possible(found: LabelledSlides, source: str) -> None:
    """Refuse what has no answer: one patient, or one class."""
    if len(set(found.patients)) < 2:
        raise InputError(
            f"{source}: all slides are of one patient, and neighbours are looked for among other patients; give more."
        )
    if len(set(found.labels.tolist())) < 2:
        raise InputError(
            f"{source}: all slides have the label {found.classes[int(found.labels[0])]!r}; there is nothing to tell apart."
        )


def _own_columns(one: Embeddings) -> "pd.DataFrame":
    import pandas as pd

    table = pd.DataFrame({**one.columns, **({} if "slide_id" in one.columns else {"slide_id": list(one.samples)})})
    table.attrs["source"] = one.source
    return table


@dataclass(frozen=True, eq=False)
class Retrieval:
    """How well neighbours share a label.

    Attributes
    ----------
    summary : DataFrame
        One row per representation, class (`all` slides, the `mean over classes`, and each) and metric: value, interval, chance.
    comparisons : DataFrame
        Every representation against the first, on the same slides: difference, interval and p-value (Holm's correction over representations).
    notes : tuple of str
        Who was left out and why.
    """

    summary: "pd.DataFrame"
    comparisons: "pd.DataFrame"
    notes: tuple[str, ...] = ()


def retrieval(
    embeddings: EmbeddingsLike | Mapping[str, EmbeddingsLike],
    table: "Path | str | pd.DataFrame | None" = None,
    label: str | None = None,
    *,
    on: str | Sequence[str] | None = None,
    at: Sequence[int] = AT,
    classes: Sequence[str] | None = None,
    leave_site_out: bool = False,
    columns: ColumnsLike = USUAL,
    bootstrap: int = 1000,
    seed: int = 0,
) -> Retrieval:
    """Judge representations by whether the nearest slides of other patients have the same label.

    Parameters
    ----------
    embeddings : EmbeddingTable, AnnData, path, or mapping of names to them
        One representation or several, which are compared on the slides that all have.
    table : path or DataFrame, optional
        Clinical table with the label; by default the embeddings' own columns.
    label : str
        Column of the label.
    on : str or list of str, optional
        What is compared, see `similar`; several are judged beside each other.
    at : sequence of int
        Numbers k of neighbours.
    classes : sequence of str, optional
        Classes that count; all others are left out.
    leave_site_out : bool, default=False
        Whether neighbours must be of another site.
    columns : Columns or dict
        Names of the table's columns, where they are not the usual ones.
    bootstrap : int, default=1000
        Resamples of the patients for the intervals; 0: none.
    seed : int, default=0
        Same seed and input: same intervals.

    Returns
    -------
    Retrieval
        Tables `summary` and `comparisons`, and notes.

    Examples
    --------
    >>> import numpy as np, pandas as pd, torch, panther
    >>> rng = np.random.default_rng(0)
    >>> bags = {f"S{n}": rng.normal(size=(50, 3)) + 3 * np.eye(3)[n % 2] for n in range(12)}
    >>> cohort = panther.embed_cohort(bags, panther.Prototypes(3 * torch.eye(3)))
    >>> table = pd.DataFrame({"slide_id": list(bags), "case_id": list(bags), "subtype": ["a", "b"] * 6})
    >>> found = panther.retrieval(cohort, table, "subtype", at=[1])
    >>> found.summary.query("group == 'all' and metric == 'acc'")[["value", "chance"]].round(2).values.tolist()
    [[1.0, 0.45]]
    """
    if label is None:
        raise InputError("`label=` is missing: the column that says which slides belong together.")
    at = checked_numbers(at)
    given = embeddings if isinstance(embeddings, Mapping) else {"embeddings": embeddings}
    opened = {name: as_embeddings(one) for name, one in given.items()}
    task = checked(TaskSpec, label=label, classes=tuple(classes) if classes else None, level="slide")
    cohort = labelled_slides(opened, table, task, columns, sites_needed=leave_site_out)
    ways = {name: searchable(cohort.rows_of(one), way) for name, one, way in _ways(opened, on)}
    sites = cohort.sites if leave_site_out else None
    judged = {name: judge(way, cohort, sites, at) for name, way in ways.items()}
    unread = [problem for one in opened.values() for problem in one.problems]
    notes = (*cohort.notes, *unread, *_left_out(judged, len(cohort.ids)))
    return Retrieval(*summarise(judged, cohort.classes, bootstrap, seed), notes)


def judge(way: Searchable, cohort: LabelledSlides, sites: Sequence[str | None] | None, at: Sequence[int]) -> Queries:
    """Every slide as a query against all slides of other patients and, where sites are given, of other sites."""
    patients = cohort.patients.tolist()
    apart = [groups(patients, patients), *([groups(sites, sites)] if sites is not None else [])]
    near = way.nearest(way.rows[:].double().numpy(), max(at), apart)
    scores = score(near, cohort.labels, cohort.labels, apart, at)
    return Queries.of(scores, cohort.ids, cohort.labels, cohort.patients)


def checked_numbers(at: Sequence[int]) -> tuple[int, ...]:
    """Numbers of neighbours, in order and each once."""
    at = plain(at)
    if not at:
        raise InputError("`at=` is empty; give numbers of neighbours, e.g. 1, 3, 5, 10.")
    for k in at:
        check_whole("`at=`", k, 1, 1000)
    return tuple(sorted(set(at)))


def _ways(opened: Mapping[str, Embeddings], on: str | Sequence[str] | None) -> list[tuple[str, Embeddings, str | None]]:
    """Every representation with every way to compare it, named."""
    ways = [on] if on is None or isinstance(on, str) else list(on)
    several = len(ways) > 1
    return [(f"{name} on {way}" if several else name, one, way) for name, one in opened.items() for way in ways]


def _left_out(judged: Mapping[str, Queries], count: int) -> list[str]:
    notes = []
    for name, one in judged.items():
        if len(one.labels) == 0:
            raise InputError(
                "No slide has another patient's slide of the same label to be found; there is nothing to judge."
            )
        if len(one.labels) < count:
            notes.append(
                f"{name}: {count - len(one.labels)} of {count} slides have no right answer (no slide of another patient with the same label), "
                "or cannot be compared, and are not asked about."
            )
    return notes

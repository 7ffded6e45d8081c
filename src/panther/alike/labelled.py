"""Slides that have a label and every representation that is judged."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from panther.cohort.load import make_cohort
from panther.cohort.spec import TaskSpec
from panther.cohort.targets import Classes
from panther.errors import InputError
from panther.storage.clinical import ClinicalTable, ColumnsLike, read_clinical
from panther.storage.embedding_files.opened import Embeddings
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
            f"{clinical.source}: says of no slide which site it is from, so sites cannot be left out; name the column with `columns.site`."
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

"""Which slides, patients, images and columns an atlas is asked for."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from panther.cohort.columns import TCGA, is_missing, listed, read_rows, without_suffix
from panther.errors import InputError
from panther.explain.atlas.shares import Factor, factor
from panther.explain.atlas.worker import AtlasJob
from panther.explain.requests import find_jobs
from panther.storage.bags import AS_WRITTEN, Reading
from panther.storage.cohort import Selection, select_slides
from panther.storage.tables import SLIDE_COLUMNS, find_column

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class AtlasCohort:
    """What the request comes to."""

    jobs: tuple[AtlasJob, ...]
    factors: tuple[Factor, ...] = ()
    notes: tuple[str, ...] = ()
    problems: Mapping[str, str] = field(default_factory=dict)  # slide -> sentence


def find_cohort(
    features: Path,
    slides: Path | None = None,
    table: Path | None = None,
    split: str | None = None,
    groups: Sequence[str] = (),
    site: str | None = None,
    reading: Reading = AS_WRITTEN,
) -> AtlasCohort:
    """Slides with features (of the table, where there is one), their patients and images, and the columns to compare by."""
    columns = [*groups, *([site] if site is not None else [])]
    if columns and table is None:
        raise InputError(f"`group=` and `site=` need a `table=` with the column {columns[0]!r}.")
    repeated = [name for name in columns if columns.count(name) > 1]
    if repeated:
        raise InputError(f"The column {repeated[0]!r} is asked for twice; give it once, with `group=` or with `site=`.")
    chosen = select_slides(features, table, split, reading=reading)
    samples = [ref.sample for ref in chosen.refs]
    patients, notes = _patients(chosen, samples)
    images = _images(features, slides, samples)
    jobs = tuple(AtlasJob(ref, patients[ref.sample], images.get(ref.sample)) for ref in chosen.refs)
    if chosen.clinical is None:
        return AtlasCohort(jobs, (), (*chosen.notes, *notes), chosen.problems)
    used = chosen.clinical.loc[samples]
    cells = _as_written(used, table, split) if columns else used
    factors = tuple(_factor(cells, name, table, patients, categories=name == site) for name in columns)
    return AtlasCohort(jobs, factors, (*chosen.notes, *notes), chosen.problems)


def _patients(chosen: Selection, samples: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Patient of each slide: of the table, else of TCGA's barcode, else the slide itself."""
    if chosen.clinical is not None and "case_id" in chosen.clinical.columns:
        return {slide: str(chosen.clinical.loc[slide, "case_id"]) for slide in samples}, []
    if all(re.match(TCGA, slide) for slide in samples):
        return {slide: slide[:12] for slide in samples}, []
    note = "Every slide counts as a patient of its own; a `table=` with a column case_id says which belong together."
    return {slide: slide for slide in samples}, [note] if len(samples) > 1 else []


def _images(features: Path, slides: Path | None, samples: Sequence[str]) -> dict[str, Path]:
    """Images by the slides' names, found as for maps."""
    if slides is None:
        return {}
    if not slides.exists():
        raise InputError(f"{slides}: there is no such folder of slides; without `slides=` the atlas has no pictures.")
    jobs, _ = find_jobs(features, None, slides, None)
    images = {job.sample: job.image for job in jobs if job.image is not None}
    if not any(sample in images for sample in samples):
        raise InputError(
            f"{slides}: none of the {len(samples)} slides has an image of its name there, e.g. {samples[0]}; "
            "give the folder of their images, or leave `slides=` out."
        )
    return images


def _as_written(used: "pd.DataFrame", table: Path | None, split: str | None) -> "pd.DataFrame":
    """Rows of the slides word for word: in a table of values a class called None is lost, and a gap may become one."""
    assert table is not None
    cells = read_rows(table / f"{split}.csv" if table.is_dir() else table)
    slides = cells[find_column(table, list(cells.columns), SLIDE_COLUMNS, "slide")].map(without_suffix)
    rows = cells.set_index(slides.rename("slide_id"))
    if "split" in cells.columns and not rows.index.is_unique:  # a slide may have a row in every part
        rows = rows[rows["split"].map(_whole) == _whole(str(split))]
    derived = {name: used[name] for name in ("slide_id", "case_id") if name in used.columns}
    return rows.loc[used.index].assign(**derived)


def _factor(
    used: "pd.DataFrame", name: str, table: Path | None, patients: Mapping[str, str], *, categories: bool
) -> Factor:
    if name not in used.columns:
        raise InputError(f"{table}: there is no column {name!r}; the columns are {listed(list(used.columns))}.")
    written = used[name].map(_whole)
    present = written[~is_missing(written)]
    if present.empty:
        raise InputError(f"{table}: the column {name!r} is empty for all {len(used)} slides; give another one.")
    try:
        return factor(name, dict(present.str.strip()), patients, categories=categories)
    except InputError as error:
        raise InputError(f"{table}: {error}") from error


def _whole(cell: str) -> str:
    """Cell without the .0 of a whole number: parquet keeps a column of whole numbers with a gap as 1.0, 2.0."""
    return cell[:-2] if re.fullmatch(r"-?\d+\.0", cell) else cell

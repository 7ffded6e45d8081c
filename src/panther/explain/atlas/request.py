"""Which slides, patients, images and columns an atlas is asked for."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from panther.errors import InputError, listed
from panther.explain.atlas.shares import Factor, factor
from panther.explain.atlas.worker import AtlasJob
from panther.explain.jobs import Images, find_images
from panther.storage.bags import BagsLike
from panther.storage.clinical import TCGA, USUAL, ColumnsLike, select_slides
from panther.storage.tables import is_missing, plain_labels, with_points

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
    features: BagsLike,
    slides: Images = None,
    table: "Path | str | pd.DataFrame | None" = None,
    split: str | None = None,
    groups: Sequence[str] = (),
    site: str | None = None,
    columns: ColumnsLike = USUAL,
) -> AtlasCohort:
    """Slides with features (of the table, where there is one), their patients and images, and the columns to compare by."""
    compared = [*groups, *([site] if site is not None else [])]
    if compared and table is None:
        raise InputError(f"table: is missing; a comparison by {compared[0]!r} requires the table with this column.")
    repeated = [name for name in compared if compared.count(name) > 1]
    if repeated:
        raise InputError(f"The column {repeated[0]!r} stands twice among `groups` and the site column; name it once.")
    chosen = select_slides(features, table, split, columns=columns)
    samples = [ref.sample for ref in chosen.refs]
    patients, notes = patients_of(chosen.patients(), samples)
    images = _images(slides, samples)
    jobs = tuple(AtlasJob(ref, patients[ref.sample], images.get(ref.sample)) for ref in chosen.refs)
    if chosen.table is None:
        return AtlasCohort(jobs, (), (*chosen.notes, *notes), chosen.problems)
    rows = chosen.table.with_ids().loc[samples]
    source = chosen.table.source
    factors = tuple(factor_of(rows, name, source, patients, categories=name == site) for name in compared)
    return AtlasCohort(jobs, factors, (*chosen.notes, *notes), chosen.problems)


def patients_of(known: Mapping[str, str] | None, samples: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Patient of each slide: of the table (``known``), else of TCGA's barcode, else the slide itself."""
    if known is not None:
        return {slide: known[slide] for slide in samples}, []
    if all(re.match(TCGA, slide) for slide in samples):
        return {slide: slide[:12] for slide in samples}, []
    note = "Every slide counts as a patient of its own; a `table=` with a column case_id says which belong together."
    return {slide: slide for slide in samples}, [note] if len(samples) > 1 else []


def _images(slides: Images, samples: Sequence[str]) -> Mapping[str, Path]:
    """Images by the slides' names, found as for maps."""
    if isinstance(slides, (str, Path)) and not Path(slides).exists():
        raise InputError(f"{slides}: there is no such folder of slides; without `slides=` the atlas has no pictures.")
    images = find_images(slides, samples)
    if slides is not None and not any(sample in images for sample in samples):
        place = f"{slides}" if isinstance(slides, (str, Path)) else "`slides=`"
        raise InputError(
            f"{place}: none of the {len(samples)} slides has an image of its name there, e.g. {samples[0]}; "
            "give the folder of their images, or leave `slides=` out."
        )
    return images


def factor_of(used: "pd.DataFrame", name: str, source: str, patients: Mapping[str, str], *, categories: bool) -> Factor:
    """Column of the clinical table as one value per patient."""
    if name not in used.columns:
        raise InputError(f"{source}: there is no column {name!r}; the columns are {listed(list(used.columns))}.")
    written = plain_labels(used[name] if categories else with_points(used[name], name, source))
    present = written[~is_missing(written)]
    if present.empty:
        raise InputError(f"{source}: the column {name!r} is empty for all {len(used)} slides; give another one.")
    try:
        return factor(name, dict(present), patients, categories=categories)
    except InputError as error:
        raise InputError(f"{source}: {error}") from error

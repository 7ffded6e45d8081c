"""The atlas of a cohort's prototypes, from features to tables and pictures."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from panther.engine import HERE, Work
from panther.errors import InputError, listed
from panther.explain.atlas.atlas import Atlas, atlas_of
from panther.explain.atlas.files import WRITTEN, write_atlas
from panther.explain.atlas.shares import Factor, factor
from panther.explain.atlas.worker import AtlasJob, AtlasSettings
from panther.explain.jobs import Images, find_images
from panther.explain.names import Names
from panther.storage.bags import BagsLike
from panther.storage.clinical import TCGA, USUAL, ColumnsLike, select_slides
from panther.storage.prototypes import as_prototypes
from panther.storage.tables import is_missing, plain_labels, with_points
from panther.store import check_output_folder
from panther.types import Prototypes

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


def make_atlas(
    features: BagsLike,
    prototypes: Prototypes | Path | str,
    slides: Images = None,
    table: "Path | str | pd.DataFrame | None" = None,
    names: Names = None,
    output: Path | str | None = None,
    *,
    groups: Sequence[str] = (),
    site: str | None = None,
    split: str | None = None,
    columns: ColumnsLike = USUAL,
    settings: AtlasSettings | None = None,
    work: Work = HERE,
) -> Atlas:
    """Describe every prototype of a cohort: what it looks like, how much there is of it, in whom, and beside what.

    Parameters
    ----------
    features : folder, file or list of bags
        Features, in any form that `as_bags` takes.
    prototypes : Prototypes or path
        What is described.
    slides : path or mapping, optional
        Folder of the slides' images, or images by the slides' names, for pictures of patches.
    table : path or DataFrame, optional
        Clinical table, one row per slide: says which slides are meant, and whose they are.
    names : path or mapping, optional
        Names of the prototypes: a YAML or CSV file, or a dictionary by number.
    output : folder, optional
        Where tables and pictures are written.
    groups : sequence of str
        Columns of the table to compare shares by: groups where they are text, Spearman's correlation where they are numbers.
    site : str, optional
        Column of the site, whose values are names, never numbers.
    split : str, optional
        Part of the table, e.g. "train".
    columns : Columns or dict
        Names of the table's slide and patient columns, where they are not the usual ones.
    settings : AtlasSettings, optional
        Method, resolutions, number of exemplars, seed.
    work : Work
        How the work is run.

    Returns
    -------
    Atlas
        Shares, tests between groups, co-occurrence, neighbours and exemplars. A slide that fails is left out and listed in ``failures``;
        an image that cannot be read costs only its pictures.

    Examples
    --------
    >>> import torch, panther
    >>> bags = [panther.Bag(name, torch.randn(40, 8)) for name in ("a", "b", "c")]
    >>> atlas = panther.make_atlas(bags, panther.Prototypes(torch.randn(4, 8)))
    >>> atlas.weights.shape, len(atlas.shares)
    ((3, 4), 4)
    """
    centroids = as_prototypes(prototypes)
    settings = settings or AtlasSettings()
    settings = replace(settings, maps=settings.maps.named(names, len(centroids)))
    cohort = find_cohort(features, slides, table, split, groups, site, columns)
    folder = None if output is None else Path(output)
    if folder is not None:
        given = [file for job in cohort.jobs for file in (*job.ref.files, job.image)]
        check_output_folder(folder, WRITTEN, given, prototypes, table, names)
    found = atlas_of(cohort.jobs, centroids, settings, cohort.factors, work=work)
    found = replace(found, notes=(*cohort.notes, *found.notes), failures={**cohort.problems, **found.failures})
    return found if folder is None else replace(found, files=tuple(write_atlas(found, folder)))

"""The atlas of a cohort's prototypes, from features to tables and pictures."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from panther.engine import HERE, Work
from panther.explain.atlas.atlas import Atlas, atlas_of
from panther.explain.atlas.files import WRITTEN, write_atlas
from panther.explain.atlas.request import find_cohort
from panther.explain.atlas.worker import AtlasSettings
from panther.explain.jobs import Images
from panther.explain.names import Names
from panther.storage.bags import BagsLike
from panther.storage.clinical import USUAL, ColumnsLike
from panther.storage.inputs import check_output_folder
from panther.storage.prototypes import as_prototypes
from panther.types import Prototypes

if TYPE_CHECKING:
    import pandas as pd


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

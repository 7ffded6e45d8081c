"""`panther atlas`."""

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from panther.errors import InputError, note, warn_left_out
from panther.verbs import parameters as p
from panther.verbs import verb

if TYPE_CHECKING:
    from panther.explain.atlas import Atlas


@verb("atlas", "Look")
def make_atlas(
    features: p.Features,
    prototypes: p.RequiredPrototypes,
    slides: p.SlideImages = None,
    table: p.TableLike = None,
    names: p.PrototypeNames = None,
    output: p.RequiredFolder = None,
    *,
    groups: Annotated[list[str] | None, p.option(panel=p.SLIDES, metavar="COLUMN")] = None,
    site_column: Annotated[str | None, p.option(panel=p.SLIDES)] = None,
    split: p.Split = None,
    slide_column: p.SlideColumn = None,
    patient_column: p.PatientColumn = None,
    method: p.AssigningMethod = "panther",
    preset: p.Preset = None,
    exemplars: Annotated[int, Field(ge=1, le=64, strict=True), p.option(panel=p.PICTURES)] = 8,
    seed: p.Seed = 0,
    slide_mpp: p.SlideMpp = None,
    slide_mpp_table: p.SlideMppTable = None,
    encoder_name: p.EncoderName = None,
    allow_mixed_resolution: p.MixedResolution = False,
    workers: p.Workers = "auto",
    device: p.Device = "auto",
    **settings: Any,
) -> "Atlas":
    """Show each prototype: patches, share of the cohort, differences between groups, neighbours.

    Parameters
    ----------
    features : path, list, mapping or Listing
        Folder of feature files, or bags in memory.
    prototypes : Prototypes or path
        What is described.
    slides : path or mapping, optional
        Folder of the slides' images, or images by the slides' names, for pictures of patches.
    table : path or DataFrame, optional
        Clinical table, one row per slide: which slides are described, and which patient each is of.
    names : path or mapping, optional
        Names of the prototypes: a YAML file, or a dictionary by number.
    output : folder, optional
        Where tables and pictures are written.
    groups : list of str, optional
        Columns of the table to compare shares by; text: groups, numbers: Spearman's correlation.
    site_column : str, optional
        Column of the site, to compare shares by; its values are names, never numbers.
    split : str, optional
        Part of the table, e.g. "train".
    slide_column, patient_column : str, optional
        Columns of the table, if not the default names.
    method, preset : str, optional
        `panther`, `ot`, `h2t` or `protocounts`; `paper`, `published-code` or `calibrated`.
    exemplars : int, default=8
        Nearest patches of each prototype, and as many random members.
    seed : int, default=0
        Same seed and input: same result.
    slide_mpp, slide_mpp_table
        True resolution of the images, um/px, where their tags are wrong; per slide a CSV with columns wsi, mpp.
    encoder_name : str, optional
        Name of the encoder, if the files give none or a wrong one.
    allow_mixed_resolution : bool
        Whether patches of different resolutions are accepted.
    workers, device
        Processes, and where patches are assigned (see :func:`panther.embed_cohort`).
    **settings
        Settings of the method, e.g. ``tau=1``.

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
    from dataclasses import replace

    from panther.engine import open_work
    from panther.explain.atlas import AtlasSettings, atlas_of, patients_of
    from panther.explain.atlas_files import WRITTEN, write_atlas
    from panther.explain.scene import MapSettings, SlideJob, find_images, tile_folders
    from panther.explain.shares import factor_of
    from panther.slides import read_mpp_table
    from panther.storage.bags import Reading
    from panther.storage.clinical import Columns, select_slides
    from panther.storage.prototypes import as_prototypes, encoder_notes
    from panther.store import check_output_folder

    compared = list(dict.fromkeys([*(groups or ()), *([] if site_column is None else [site_column])]))
    if compared and table is None:
        raise InputError(f"table: missing; comparing by {compared[0]!r} requires a table with this column")
    fitted = as_prototypes(prototypes)
    options = ({} if preset is None else {"preset": preset}) | settings
    resolutions = {} if slide_mpp_table is None else read_mpp_table(slide_mpp_table)
    maps = MapSettings(method, options, slide_mpp=slide_mpp, slide_mpp_table=resolutions).named(names, len(fitted))
    reading, columns = Reading(encoder_name, allow_mixed_resolution), Columns(slide_column, patient_column)
    chosen = select_slides(features, table, split, reading=reading, columns=columns)
    samples = [ref.sample for ref in chosen.refs]
    patients, notes = patients_of(chosen.patients(), samples)
    images = tile_folders(slides, samples) or find_images(slides, samples)
    if slides is not None and not set(samples) & set(images):
        raise InputError(
            f"slides: none of the {len(samples)} slides has an image of its name in {slides}, e.g. {samples[0]}"
        )
    factors = []
    if chosen.table is not None:
        rows = chosen.table.with_ids().loc[samples]
        for name in compared:
            is_site = name == site_column
            factors.append(factor_of(rows, name, chosen.table.source, patients, categories=is_site))
    jobs = [SlideJob(ref, images.get(ref.sample), patient=patients[ref.sample]) for ref in chosen.refs]
    if output is not None:
        check_output_folder(
            output, WRITTEN, chosen.refs, list(images.values()), prototypes, table, names, slide_mpp_table
        )
    with open_work(workers, chosen.refs, device=device) as work:
        unnamed = encoder_notes(fitted, chosen.refs, work)
        atlas = atlas_of(jobs, fitted, AtlasSettings(maps, exemplars, seed), factors, work=work)
    failures = {**chosen.problems, **atlas.failures}
    notes = [*chosen.notes, *notes, *unnamed, *atlas.notes]
    atlas = replace(atlas, notes=tuple(notes), failures=failures)
    if output is not None:
        atlas = replace(atlas, files=tuple(write_atlas(atlas, output)))
    note(*atlas.notes)
    warn_left_out("Left out of the atlas", failures)
    return atlas

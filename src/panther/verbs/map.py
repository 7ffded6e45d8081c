"""`panther map`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator

from panther.errors import InputError, note, require_packages, warn_left_out
from panther.verbs import parameters as p
from panther.verbs import verb

if TYPE_CHECKING:
    from panther.explain.maps import SlideMaps


@verb("map", "Look")
def make_map(
    features: p.Features,
    prototypes: p.PrototypesLike = None,
    model: Annotated[Any, p.option(panel=p.PROTOTYPES, text=Path, metavar="FILE")] = None,
    slides: p.SlideImages = None,
    names: p.PrototypeNames = None,
    output: p.RequiredFolder = None,
    *,
    method: p.AssigningMethod = "panther",
    preset: p.Preset = None,
    prototype: Annotated[int | str | None, p.option(panel=p.PICTURES, metavar="C")] = None,
    attention: Annotated[Literal["rank", "linear"] | None, p.option(panel=p.PICTURES)] = None,
    contours: Annotated[Path | None, p.option(panel=p.PICTURES, metavar="PATH")] = None,
    max_side: p.MaxSide = 2048,
    background: p.Background = "grey",
    opacity: p.Opacity = None,
    slide_mpp: p.SlideMpp = None,
    slide_mpp_table: p.SlideMppTable = None,
    encoder_name: p.EncoderName = None,
    allow_mixed_resolution: p.MixedResolution = False,
    formats: Annotated[
        list[Literal["png", "svg", "geojson", "csv", "dicom", "dicom-seg"]] | None,
        BeforeValidator(p.split_names),
        p.option(panel=p.PICTURES, text=p.split_names, metavar="A,B,C"),
    ] = None,
    part: p.Part = "",
    workers: p.Workers = "auto",
    device: p.Device = "auto",
    **settings: Any,
) -> "SlideMaps":
    """Draw which prototype each patch of a slide belongs to, over the slide; regions as GeoJSON for QuPath.

    With a supervised network (``model``): where its attention lies.

    Parameters
    ----------
    features : path, list, mapping or bag
        Features with coordinates: a file, a folder, or bags in memory.
    prototypes : Prototypes or path, optional
        What is mapped; or give ``model``.
    model : Model or path, optional
        Instead of prototypes, a model of `panther train`: its prototypes or, where it is a network, its attention.
    slides : path or mapping, optional
        The slide's image, a folder of images, or images by the slides' names; without it maps lie on a blank grid.
    names : path or mapping, optional
        Names of the prototypes, with colours and groups where it has them: a YAML file, or a dictionary by number.
    output : folder, optional
        Where pictures and regions are written. Without it nothing is written and the maps are returned.
    method, preset : str, optional
        How patches are assigned: `panther`, `ot`, `h2t` or `protocounts` (the nearest prototype); `paper`, `published-code` or `calibrated`.
    prototype : int or str, optional
        Prototype (3 or "C3") with a heatmap, or "all"; by default the largest one stands beside the map.
    attention : {"rank", "linear"}, optional
        Networks: colours by the rank of the attention within the slide (default), or in proportion to it.
    contours : path, optional
        GeoJSON of the tissue's outline, or a folder of them.
    max_side : int, default=2048
        Longest side of a picture, pixels.
    background, opacity
        What lies behind the colours (`grey`, `colour`, `none`), and how far they hide it, 0 to 1.
    slide_mpp, slide_mpp_table
        True resolution of the images, um/px, where their tags are wrong; per slide a CSV with columns wsi, mpp.
    encoder_name : str, optional
        Name of the encoder, if the files give none or a wrong one.
    allow_mixed_resolution : bool
        Whether patches of different resolutions are accepted.
    formats : list of str, optional
        Any of png, svg, geojson, csv, and for DICOM slides dicom (labelmap segmentation and parametric map) and dicom-seg (binary
        segmentation); by default png and, for prototypes, geojson and csv.
    part : str, optional
        Part k/n of the slides, e.g. "2/8", for the tasks of a job array.
    workers, device
        Processes, and where patches are assigned (see :func:`panther.embed_cohort`).
    **settings
        Settings of the method, e.g. ``tau=1``.

    Returns
    -------
    SlideMaps
        Mapping of slide names to `SlideMap` (of a network: `AttentionMap`), with ``notes`` and ``failures``.

    Examples
    --------
    >>> import torch, panther
    >>> corners = torch.tensor([[x, y] for x in range(0, 1024, 256) for y in range(0, 1024, 256)])
    >>> bag = panther.Bag("a", torch.randn(16, 8), lambda: corners, panther.PatchSpec(size_level0=256))
    >>> maps = panther.make_map(bag, panther.Prototypes(torch.randn(3, 8)))
    >>> maps["a"].labels.shape, list(maps["a"].figures())
    ((16,), ['map', 'side_by_side', 'neighbours'])
    """
    from dataclasses import replace
    from functools import partial

    from panther.aggregators import build
    from panther.engine import open_work, part_of, stream
    from panther.explain.maps import USUAL, WRITTEN, SlideMaps, map_job, map_slide
    from panther.explain.names import prototype_number
    from panther.explain.palette import Paint
    from panther.explain.scene import MapSettings, refuse_nothing, slide_jobs
    from panther.slides import read_mpp_table
    from panther.storage.bags import Reading, as_bags
    from panther.storage.prototypes import as_prototypes, encoder_notes
    from panther.store import check_output_folder
    from panther.types import Bag

    if (prototypes is None) == (model is None):
        raise InputError("prototypes: expected prototypes or a model, one of them")
    options = ({} if preset is None else {"preset": preset}) | settings
    network = None
    if model is not None:
        from panther.explain.attention import shown_by

        if method != "panther" or options:
            raise InputError("method: belongs to prototypes, the model has its own")
        prototypes, method, options, network = shown_by(model)
    unfitting = {"attention": attention} if network is None else {"prototype": prototype, "names": names}
    unfitting |= {"formats": network and {"geojson", "csv", "dicom", "dicom-seg"} & set(formats or ())}
    for name, value in unfitting.items():
        if value:
            raise InputError(
                f"{name}: found {value}, but {'prototypes are' if network is None else 'attention is'} mapped"
            )
    if {"dicom", "dicom-seg"} & set(formats or ()):
        require_packages("dicom", "highdicom")
    table = {} if slide_mpp_table is None else read_mpp_table(slide_mpp_table)
    how = MapSettings(method, options, max_side, slide_mpp, table, Paint(background, opacity))
    chosen = None
    if network is None:
        fitted = as_prototypes(prototypes)
        how = how.named(names, len(fitted))
        build(how.method, fitted, how.options)  # refuses a wrong setting before the work
        if prototype is not None:
            every = range(len(fitted))
            chosen = list(every) if prototype == "all" else [prototype_number(str(prototype), len(fitted))]
    bags = [features] if isinstance(features, Bag) else features
    listing = as_bags(bags, Reading(encoder_name, allow_mixed_resolution))
    refs, failures = part_of(listing.refs, part), dict(listing.problems)
    jobs = slide_jobs(refs, slides, contours)
    if output is not None:
        check_output_folder(output, WRITTEN, [file for job in jobs for file in job.files], prototypes, model, names)
    with open_work(workers, refs, device=device) as work:
        how = replace(how, device=work.device)
        unnamed = encoder_notes(fitted, refs, work) if network is None else []
        if network is None:
            make: Any = partial(map_slide, prototypes=fitted, settings=how)
        else:
            from panther.explain.attention import map_attention

            make = partial(map_attention, model=network, settings=how, scale=attention or "rank")
        kinds = formats or (USUAL if network is None else ("png",))
        one = partial(map_job, make=make, chosen=chosen, formats=kinds, folder=output)
        mapped = []
        for _, slide in stream(one, jobs, "mapping", work, failures):
            mapped.append(slide)
    refuse_nothing(mapped, failures, "could be mapped")
    maps = SlideMaps(tuple(mapped), failures)
    note(*unnamed, *maps.notes)
    warn_left_out("Left out of the maps", failures)
    return maps

"""`panther map`."""

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from panther.cli import _common as common
from panther.cli import _options as opt
from panther.cli._parsers import parse_settings

if TYPE_CHECKING:
    from panther.explain.maps import MappedSlide


def map_slides(
    place: Annotated[
        Path,
        typer.Argument(
            metavar="FEATURES|SLIDE", help="Feature file or folder; or a slide, with --features.", show_default=False
        ),
    ],
    output: opt.FolderOption,
    prototypes: Annotated[Path | None, typer.Option("-p", "--prototypes", help="Prototype file.")] = None,
    model: Annotated[
        Path | None,
        typer.Option(help="Instead of -p, a model of `panther train`: its prototypes, or its network's attention."),
    ] = None,
    slides: opt.SlidesOption = None,
    features: Annotated[Path | None, typer.Option(help="Features of the slide given first: a file or folder.")] = None,
    method: Annotated[str | None, typer.Option(help="panther (default), ot, h2t or protocounts.")] = None,
    preset: opt.PresetOption = None,
    setting: opt.SetOption = None,
    assignment: Annotated[
        str | None, typer.Option(help="argmax: the nearest prototype, instead of a method's shares.")
    ] = None,
    prototype: Annotated[
        str | None, typer.Option(help="Heatmap of one prototype (C3) or all; the largest beside the map by default.")
    ] = None,
    attention: Annotated[
        str | None, typer.Option(help="Networks: rank of the attention within the slide (default), or linear.")
    ] = None,
    names: opt.NamesOption = None,
    contours: Annotated[
        Path | None, typer.Option(help="GeoJSON of the tissue's outline, or the folder of them.")
    ] = None,
    max_side: opt.MaxSideOption = 2048,
    background: opt.BackgroundOption = "grey",
    opacity: opt.OpacityOption = None,
    slide_mpp: opt.SlideMppOption = None,
    slide_mpp_table: opt.SlideMppTableOption = None,
    encoder_name: opt.EncoderNameOption = None,
    mixed: opt.MixedOption = False,
    formats: Annotated[
        str | None,
        typer.Option(help="Any of png,svg,tiff,geojson,csv; png,geojson,csv where there are prototypes."),
    ] = None,
    workers: opt.WorkersOption = "0",
    part: opt.PartOption = "",
    device: opt.DeviceOption = "auto",
    as_json: opt.JsonOption = False,
) -> None:
    """Draw which prototype each patch of a slide belongs to, over the slide; regions as GeoJSON for QuPath.

    With a supervised network (--model): where its attention lies.
    """
    from panther.explain.jobs import is_slide
    from panther.explain.maps import make_map
    from panther.explain.palette import Paint
    from panther.explain.scene import MapSettings
    from panther.limits import part_of
    from panther.slides import read_mpp_table
    from panther.storage.bags import list_bags

    start = time.perf_counter()
    images, folder = _images_and_features(place, slides, features, is_slide(place))
    how = MapSettings(
        *_method(method, preset, setting, assignment),
        max_side=max_side,
        slide_mpp=slide_mpp,
        slide_mpp_table=read_mpp_table(slide_mpp_table) if slide_mpp_table else {},
        paint=Paint(background, opacity),
    )
    listing = list_bags(folder, reading=common.reading(encoder_name, mixed))
    listing = replace(listing, refs=part_of(listing.refs, part))
    with common.open_work(workers, listing.refs, device) as work:
        found = make_map(
            listing,
            prototypes,
            model,
            images,
            names,
            output,
            contours=contours,
            prototype=prototype,
            attention=attention,
            formats=_formats(formats),
            settings=how,
            work=work,
        )
    seconds = time.perf_counter() - start
    files = sum(len(one.files) for one in found.slides)
    lines = [
        f"{len(found)} slide{'s' if len(found) > 1 else ''} mapped in {seconds:.1f} s -> {output} ({files} files)",
        *(line for one in found.slides[:20] for line in _told(one)),
    ]
    result = {"output": str(output), "seconds": seconds, "slides": [one.to_dict() for one in found.slides]}
    common.report(result, lines, found.failures, as_json=as_json, notes=found.notes)


def _told(one: "MappedSlide") -> list[str]:
    """A slide's largest prototypes, and what lies beside what."""
    beside = [f"    {sentence}" for sentence in one.numbers.get("neighbours", ())]
    return [f"  {one.slide}: {one.patches:,} patches, {one.summary}", *beside]


def _images_and_features(
    place: Path, slides: Path | None, features: Path | None, is_slide: bool
) -> tuple[Path | None, Path]:
    """Images and features of the two ways to ask: FEATURES --slides IMAGES, or SLIDE --features FEATURES."""
    from panther.errors import InputError

    if not is_slide:
        if features is not None:
            raise InputError(
                f"--features belongs to a slide, but {place} is none; give the features alone, and --slides."
            )
        return slides, place
    if slides is not None:
        raise InputError(f"{place} is a slide already; give --features with it, not --slides.")
    if features is None:
        raise InputError(
            f"{place.name}: a slide's image has no features by itself; give their file or folder with --features."
        )
    return place, features


def _method(
    method: str | None, preset: str | None, setting: list[str] | None, assignment: str | None
) -> tuple[str, dict[str, Any]]:
    from panther.errors import InputError

    options = parse_settings(setting, preset=preset)
    if assignment is None:
        return method or "panther", options
    if assignment != "argmax":
        raise InputError(
            f"--assignment {assignment!r} is not known; argmax is (the nearest prototype), or use --method."
        )
    if method or options:
        raise InputError(
            "--assignment argmax takes the nearest prototype and has no method or settings; give one or the other."
        )
    return "protocounts", {}


def _formats(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",")]

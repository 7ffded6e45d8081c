"""`panther map`."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from panther.cli import _common as common
from panther.cli import _options as opt
from panther.cli.embed import parse_settings


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
    mpp_table: opt.SlideMppTableOption = None,
    encoder_name: opt.EncoderNameOption = None,
    mixed: opt.MixedOption = False,
    formats: Annotated[
        str | None,
        typer.Option("--format", help="Any of png,svg,tiff,geojson; png,geojson where there are prototypes."),
    ] = None,
    as_json: opt.JsonOption = False,
) -> None:
    """Draw which prototype each patch of a slide belongs to, over the slide; regions as GeoJSON for QuPath.

    With a supervised network (--model): where its attention lies.
    """
    from panther.explain.maps import MapSettings
    from panther.explain.paint import Paint
    from panther.explain.requests import find_jobs
    from panther.slides import read_mpp_table
    from panther.storage.inputs import check_output_folder

    asked = {"--method": method, "--preset": preset, "--set": setting, "--assignment": assignment}
    source = _source(prototypes, model, asked)
    table = read_mpp_table(mpp_table) if mpp_table else {}
    paint = Paint(background, opacity)
    settings = MapSettings(max_side=max_side, slide_mpp=slide_mpp, mpp_table=table, paint=paint)
    if source.network is not None:
        _refuse({"--prototype": prototype, "--names": names}, "show prototypes, but the model is a network")
        what = _attention(source.network, settings, output, attention, formats)
    else:
        _refuse({"--attention": attention}, "belongs to networks, but prototypes are mapped")
        what = _prototypes(source, settings, output, (prototype, names), formats)
    jobs, problems = find_jobs(place, features, slides, contours, common.reading(encoder_name, mixed))
    given = [file for job in jobs for file in (*job.ref.files, job.image, job.contours)]
    check_output_folder(
        output, ("*.geojson", "*.*.png", "*.*.svg", "*.*.tif"), given, prototypes, model, names, mpp_table
    )
    _run(jobs, problems, what, output, as_json)


class _Source(NamedTuple):
    """What is mapped: prototypes by a method, or a network's attention."""

    network: Any = None  # a panther.models.model.Model
    prototypes: Any = None
    method: str = "panther"
    options: Mapping[str, Any] | None = None


def _source(prototypes: Path | None, model: Path | None, asked: dict[str, Any]) -> _Source:
    from panther.aggregators import build
    from panther.errors import InputError
    from panther.storage.prototypes import load_prototypes

    if (prototypes is None) == (model is None):
        found = "both were given" if prototypes else "neither was given"
        raise InputError(f"A map shows prototypes (-p FILE) or a trained model (--model FILE), but {found}; give one.")
    if model is None:
        method, options = _method(*asked.values())
        source = _Source(None, load_prototypes(Path(str(prototypes))), method, options)
    else:
        from panther.models.model_file import load_model

        _refuse(asked, "say how to assign patches, which the model of --model tells already")
        loaded = load_model(model)
        if loaded.scaler is None:
            return _Source(loaded)
        source = _Source(None, loaded.prototypes, loaded.method.name, dict(loaded.method.options))
    build(source.method, source.prototypes, source.options)  # refuses a setting that is not there before the work
    return source


def _refuse(options: dict[str, Any], why: str) -> None:
    from panther.errors import InputError

    given = [name for name, value in options.items() if value]
    if given:
        raise InputError(f"{' and '.join(given)} {why}; leave it out.")


def _prototypes(
    source: _Source, settings: Any, output: Path, chosen: tuple[str | None, Path | None], formats: str | None
) -> Callable[[Any], Any]:
    """Function that maps one slide's prototypes."""
    from panther.explain.names import prototype_number, read_names
    from panther.explain.requests import run_one

    prototype, names = chosen
    count = len(source.prototypes)
    numbers = None if prototype is None else list(range(count))
    if prototype not in (None, "all"):
        numbers = [prototype_number(str(prototype), count, where="--prototype: ")]
    named = read_names(names, count) if names else {}
    settings = replace(settings, method=source.method, options=source.options or {}, names=named)
    kinds = _formats(formats or "png,geojson")
    return partial(
        run_one, prototypes=source.prototypes, settings=settings, folder=output, chosen=numbers, formats=kinds
    )


def _attention(
    network: Any, settings: Any, output: Path, scale: str | None, formats: str | None
) -> Callable[[Any], Any]:
    """Function that maps the attention on one slide."""
    from panther.errors import InputError
    from panther.explain.attention import SCALES, run_attention

    kinds = _formats(formats or "png")
    if "geojson" in kinds:
        raise InputError("--format geojson: attention has no regions; use png, svg or tiff.")
    if scale is not None and scale not in SCALES:
        raise InputError(f"--attention {scale!r} is not known; known are {', '.join(SCALES)}.")
    return partial(run_attention, model=network, settings=settings, folder=output, scale=scale or "rank", formats=kinds)


def _run(
    jobs: Sequence[Any], problems: dict[str, str], what: Callable[[Any], Any], output: Path, as_json: bool
) -> None:
    from panther.errors import InputError
    from panther.execution import collect, open_work

    start = time.perf_counter()
    with open_work(1, track=common.track) as work:
        mapped, failed = collect(what, jobs, "mapping", work)
    done, failures = list(mapped.values()), {**problems, **failed}
    notes = [note for one in done for note in one.notes]
    if not done:
        reason = next(iter(failures.values()), "No file holds features.")
        raise InputError(
            reason if len(failures) == 1 else f"None of the {len(failures)} slides could be mapped. {reason}"
        )
    seconds = time.perf_counter() - start
    files = sum(len(one.files) for one in done)
    lines = [
        f"{len(done)} slide{'s' if len(done) > 1 else ''} mapped in {seconds:.1f} s -> {output} ({files} files)",
        *(f"  {one.slide}: {one.patches:,} patches, {one.summary}" for one in done[:20]),
    ]
    result = {"output": str(output), "seconds": seconds, "slides": [one.told() for one in done]}
    common.report(result, lines, failures, as_json=as_json, notes=notes)


def _method(
    method: str | None, preset: str | None, setting: list[str] | None, assignment: str | None
) -> tuple[str, dict[str, Any]]:
    from panther.errors import InputError

    options = ({} if preset is None else {"preset": preset}) | parse_settings(setting)
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


def _formats(text: str) -> tuple[str, ...]:
    from panther.errors import InputError
    from panther.explain.maps import FORMATS

    asked = [name.strip() for name in text.split(",") if name.strip()]
    if not asked or any(name not in FORMATS for name in asked):
        raise InputError(f"--format {text!r}: known are {', '.join(FORMATS)}.")
    return tuple(asked)

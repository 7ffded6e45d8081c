"""`panther slides`."""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from panther.cli import _common as common
from panther.cli import _options as opt
from panther.cli._parsers import parse_settings
from panther.cli._slides_plan import notes_on_slides, show_plan
from panther.progress import PatchProgress

SlidesArgument = Annotated[
    list[Path],
    typer.Argument(
        metavar="SLIDES...",
        help="Slide files, or folders of them (searched in depth); or folders of tile images.",
        show_default=False,
    ),
]
TissueOption = Annotated[str, typer.Option("--tissue", help="How tissue is found.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "-s",
        "--set",
        help="A setting of --tissue as name=value, in um or um2: min_area=5000, max_hole=50000, highest=0.06, pen=false ...; repeatable.",
    ),
]


STEPS = ("tissue", "patches", "features")  # in the order of the work; the last needs an encoder


def slides(
    slides: SlidesArgument,
    job: Annotated[Path, typer.Option("-o", "--output", help="Job folder; run again to go on.", show_default=False)],
    mpp: Annotated[float | None, typer.Option(help="Resolution of the patches, um/px; 0.5 by default.")] = None,
    mag: Annotated[float | None, typer.Option(help="The same as a magnification: 20 is 0.5 um/px.")] = None,
    patch_size: Annotated[int, typer.Option(min=1, help="Pixels at that resolution.")] = 256,
    overlap: Annotated[int, typer.Option(min=0, help="Pixels that neighbours share.")] = 0,
    min_tissue: Annotated[float, typer.Option(min=0, max=1, help="Least part of a patch that is tissue.")] = 0.25,
    edge: Annotated[
        str, typer.Option(help="Strips at the right and bottom narrower than a patch: drop, or pad them with white.")
    ] = "drop",
    tissue: TissueOption = "colour",
    setting: SetOption = None,
    slide_mpp: opt.SlideMppOption = None,
    slide_mpp_table: opt.SlideMppTableOption = None,
    steps: Annotated[
        str | None, typer.Option(help="Steps to run: tissue,patches,features; the last by default only with --encoder.")
    ] = None,
    encoder: opt.EncoderOption = None,
    weights: opt.WeightsOption = None,
    stain: Annotated[
        str | None, typer.Option(help="Normalise the stains of every slide before encoding: macenko.")
    ] = None,
    device: Annotated[
        str, typer.Option(help="Where to encode: auto (a GPU if there is one), cpu, cuda, or several: cuda:0,cuda:1.")
    ] = "auto",
    precision: opt.PrecisionOption = "auto",
    batch: opt.BatchOption = 0,
    dtype: opt.FeatureDtypeOption = "float16",
    cache: Annotated[
        Path | None,
        typer.Option(
            help="Folder on a fast disk of this machine to which the next slides are copied before they are encoded."
        ),
    ] = None,
    cache_size: Annotated[
        float, typer.Option(min=0, help="Most GB of copies at a time; 0: half of what is free there.")
    ] = 0.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Tell patches, bytes and time; write nothing.")] = False,
    workers: opt.WorkersOption = "0",
    part: opt.PartOption = "",
    as_json: opt.JsonOption = False,
) -> None:
    """Find the tissue of SLIDES, lay patches over it and encode them; a killed run resumes.

    Of a folder of tile images every sub-folder becomes one bag, without coordinates.
    """
    from panther.encoders.sources import list_tile_folders
    from panther.engine import Work, open_executor, open_work, parse_workers, part_of
    from panther.slides import Job, PatchStep, SlideFiles, TissueStep, run_job
    from panther.slides.plan import Planner
    from panther.store import check_output_folder

    find = TissueStep(_tissue_settings(tissue, setting))
    lay = PatchStep(patch_size, _target(mpp, mag), overlap, min_tissue, edge)
    names = _step_names(steps or ",".join(STEPS if encoder else STEPS[:2]))
    chosen = [step for step in (find, lay) if step.name in names]
    earlier = [step for step in (find, lay)[: STEPS.index(names[0])] if step not in chosen]
    tiles = list_tile_folders(slides)
    if tiles is not None:
        of_slides = {"--steps": steps, "--stain": stain, "--cache": cache, "--dry-run": dry_run}
        names, chosen, earlier = _steps_of_tiles(slides[0], encoder, of_slides), [], []
    listing = tiles or _listing(slides, slide_mpp, slide_mpp_table, job)
    listing = replace(listing, refs=part_of(listing.refs, part))
    where = parse_workers(workers)
    _check_cache(cache, where)
    local = where if isinstance(where, int) else 0  # processes of this machine
    with open_executor(where) if isinstance(where, str) else nullcontext() as there:  # None: no cluster
        features = None
        if STEPS[2] in names:
            device = device if there is None else common.cluster_device(there, device)
            choice = replace(_choice(encoder or "lite0", weights, device, precision, there), stain=stain)
            patches = lay.folder if tiles is None else "tiles"
            features = _features(patches, choice, batch, local, dtype)
        local = common.suitable_workers(local, listing.refs)
        notes = _without_features(cache, stain) if features is None else []
        if dry_run:
            show_plan(listing, Planner(Job(job), find, lay), features, local, as_json, notes)
            return
        check_output_folder(job, ("summary.csv",), slide_mpp_table, weights)
        if features is not None:
            features.prepare((SlideFiles(ref, Job(job)) for ref in listing.refs), _encoding_workers(features, there))
        start = time.perf_counter()
        done = None
        track: Callable[..., Any] = common.track
        if chosen:
            pool = open_work(local, track=track) if there is None else nullcontext(Work(there, track=track))
            with pool as work:
                done = run_job(
                    listing.refs, chosen, Job(job), work=work, problems=listing.problems, earlier=earlier, part=part
                )
        if features is not None:
            problems = listing.problems if done is None else {}
            if done is not None and there is None:  # the patches are counted
                progress = PatchProgress([ref.name for ref in done.remaining(listing.refs)], done.patches_by_slide)
                features.on_progress, track = progress.advance, progress.track
            with features as step, _encoding(step, there) as executor, _copies(cache, cache_size) as copies:
                done = run_job(
                    listing.refs,
                    [step],
                    Job(job),
                    work=Work(executor, track=track),
                    problems=problems,
                    before=done,
                    cache=copies,
                    earlier=[] if chosen else earlier,
                    part=part,
                )
                notes = [] if copies is None else copies.notes
    assert done is not None
    seconds = time.perf_counter() - start
    result = {"job": str(job), "patches": done.patches, "worked": done.worked, "seconds": seconds, "slides": done.rows}
    if features is not None and there is None:
        result["features"] = vars(features.balance)
    lines = [
        *_lines(done, job, seconds, tiles is None),
        *([str(features.balance)] if features is not None and there is None else []),
    ]
    common.report(result, lines, done.failures, as_json=as_json, notes=[*_notes(listing, done), *notes])


def _choice(encoder: str, weights: Path | None, device: str, precision: str, there: Any) -> Any:
    """The encoder, and the devices that it runs on: here, or those of a cluster's workers, which are not looked for here."""
    from panther.encoders.step import EncoderChoice

    asked = tuple(name.strip() for name in device.split(","))
    devices = asked if there is not None else tuple(map(common.checked_device, asked))
    return EncoderChoice(encoder, weights, devices, precision)


def _features(patches: str, choice: Any, batch: int, workers: int, dtype: str) -> Any:
    from panther.encoders.pipeline import ExtractSettings
    from panther.encoders.step import FeatureStep, TileStep

    step = TileStep if patches == "tiles" else FeatureStep
    return step(patches, choice, ExtractSettings(batch, workers, dtype, guarded=True))


def _steps_of_tiles(place: Path, encoder: str | None, of_slides: dict[str, Any]) -> list[str]:
    """The only step of tile images; options that are for slides alone are refused."""
    from panther.errors import InputError

    if encoder is None:
        raise InputError(f"{place}: holds tile images, which are only encoded; name an encoder with --encoder.")
    for option, value in of_slides.items():
        if value:
            raise InputError(f"{option}: is for slides, and {place} holds tile images; leave it out.")
    return [STEPS[2]]


def _without_features(cache: Path | None, stain: str | None) -> list[str]:
    """Notes on options of a step that is not run."""
    options = {"--cache": (cache, "copied"), "--stain": (stain, "normalised")}
    said = "is for the step features, which was not asked for; nothing was"
    return [f"{option} {said} {done}." for option, (given, done) in options.items() if given is not None]


def _check_cache(folder: Path | None, workers: int | str) -> None:
    """Refuse a place for copies before the work."""
    from panther.errors import InputError
    from panther.store import check_writable_folder

    if folder is not None and isinstance(workers, str):
        raise InputError(f"cache: a disk of this machine, which workers of {workers} do not read; leave it out")
    if folder is not None:
        check_writable_folder(folder)


def _copies(folder: Path | None, gigabytes: float) -> AbstractContextManager[Any]:
    """Copies of the next slides on a disk of this machine."""
    from panther.slides.cache import SlideCache

    return nullcontext() if folder is None else SlideCache(folder, round(gigabytes * 1e9) or None)


def _encoding(step: Any, there: Any) -> AbstractContextManager[Any]:
    """What runs the encoder: this process, with one thread per device, or the workers of a cluster."""
    return (step.executor() or nullcontext()) if there is None else nullcontext(_encoding_workers(step, there))


def _encoding_workers(step: Any, there: Any) -> Any:
    """Workers of a cluster that run the encoder; None where there is no cluster."""
    return None if there is None else there.for_work(gpu=step.choice.devices[0] != "cpu", in_worker=True)


def _target(mpp: float | None, mag: float | None) -> float:
    from panther.errors import InputError

    if mpp is not None and mag is not None:
        raise InputError("--mpp and --mag say the same thing in two ways; give one of them.")
    value = mpp if mpp is not None else (10 / mag if mag else 0.5 if mag is None else 0.0)
    if not 0.05 <= value <= 50:
        raise InputError(f"Patches at {value:g} um/px make no sense; --mpp 0.5 (or --mag 20) is usual.")
    return value


def _tissue_settings(method: str, pairs: list[str] | None) -> Any:
    from panther.slides import TissueSettings, segmenters

    segmenters.entry(method)
    return TissueSettings.of(method, parse_settings(pairs))


def _step_names(text: str) -> list[str]:
    from panther.errors import InputError

    asked = [name.strip() for name in text.split(",") if name.strip()]
    if not asked or any(name not in STEPS for name in asked):
        raise InputError(f"--steps {text!r}: known steps are {', '.join(STEPS)}.")
    return [name for name in STEPS if name in asked]


def _listing(slides: Sequence[Path], mpp: float | None, table: Path | None, job: Path) -> Any:
    from panther.slides import list_slides, read_mpp_table, resolve_mpp

    if mpp is not None:
        resolve_mpp({}, mpp)  # refuses what cannot be true, before the work
    return list_slides(slides, read_mpp_table(table) if table else None, mpp, leave_out=job)


def _lines(done: Any, job: Path, seconds: float, contours: bool) -> list[str]:
    from panther.storage.names import PARTLY

    finished = [row for row in done.rows if row["status"] in ("done", PARTLY)]
    partly = sum(row["status"] == PARTLY for row in finished)
    before = sum(row["slide"] not in done.ran for row in finished)
    lines = [
        f"{len(finished) - partly} of {len(done.rows)} slides done{f', {partly} partly read' if partly else ''}, "
        f"{done.patches:,} patches, {seconds:.1f} s ({before} were done already) -> {job}"
    ]
    if finished and contours:
        lines.append(f"Look at the contours in {job / 'contours'}; edited GeoJSON files are honoured by the next run.")
    return lines


def _notes(listing: Any, done: Any) -> list[str]:
    noted = notes_on_slides(((row["slide"], row.get("note") or "") for row in done.rows), "see summary.csv")
    return [*listing.notes, *noted]

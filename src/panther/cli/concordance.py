"""`panther tissue-classifier` and `panther concordance`: prototypes beside tissue classes."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from panther.cli import _common as common
from panther.cli import _options as opt
from panther.cli._parsers import parse_settings

BY = ("members", "centroid")


def train_classifier(
    tiles: Annotated[
        Path,
        typer.Argument(
            help="Folder with a sub-folder of tile images (or feature files) per class; or a file of `encode-tiles`.",
            show_default=False,
        ),
    ],
    output: opt.OutputOption,
    encoder: opt.EncoderOption = None,
    weights: opt.WeightsOption = None,
    per_class: Annotated[int, typer.Option(help="Tiles of each class at most, drawn at random.")] = 500,
    folds: Annotated[int, typer.Option(help="Folds of the cross-validation that judges the classifier.")] = 5,
    seed: opt.SeedOption = 0,
    device: opt.DeviceOption = "auto",
    precision: opt.PrecisionOption = "auto",
    batch: opt.BatchOption = 0,
    workers: opt.WorkersOption = 0,
    as_json: opt.JsonOption = False,
) -> None:
    """Train a classifier of tissue on labelled tiles: logistic regression on an encoder's features, cross-validated."""
    from panther.encoders.pipeline import ExtractSettings
    from panther.explain.concordance.probe import ProbeSettings, fit_probe
    from panther.explain.concordance.probe_file import save_probe
    from panther.explain.concordance.probe_tiles import holds_features
    from panther.explain.concordance.told import probe_lines, probe_notes
    from panther.storage.inputs import check_output

    settings = ProbeSettings(per_class, folds, seed)
    check_output(output, tiles, tiles.rglob("*"), weights)
    failures: dict[str, str] = {}
    if holds_features(tiles):
        labelled = _features(tiles, settings, encoder)
    else:
        how = (encoder or "lite0", weights, common.checked_device(device), precision)
        labelled, failures = _encoded(tiles, settings, output, how, ExtractSettings(batch, workers))
    probe = fit_probe(labelled, settings)
    save_probe(probe, output)
    result: dict[str, Any] = {
        "output": str(output),
        "classes": list(probe.classes),
        "encoder": probe.encoder,
        "dim": probe.dim,
    }
    result |= {"hash": probe.content_hash(), "settings": dict(probe.settings), **probe.evaluation}
    common.report(result, probe_lines(probe, output), failures, as_json=as_json, notes=probe_notes(probe))


def compare(
    features: opt.FeaturesArgument,
    prototypes: opt.PrototypesOption,
    output: opt.FolderOption,
    probe: Annotated[Path | None, typer.Option("--classifier", help="File of `panther tissue-classifier`.")] = None,
    labels: Annotated[
        Path | None, typer.Option("--patch-labels", help="Instead: CSV of patches, slide_id,x,y,label.")
    ] = None,
    positive: Annotated[
        str | None, typer.Option(help="Classes that are tumour, e.g. aca,scc: its heatmaps side by side.")
    ] = None,
    slides: opt.SlidesOption = None,
    names: opt.NamesOption = None,
    by: Annotated[
        str, typer.Option("--class-from", help="What gives a prototype its class: members (majority) or centroid.")
    ] = BY[0],
    region: Annotated[
        str | None, typer.Option(help="Part to enlarge, x,y,w,h at level 0; else where most tumour is.")
    ] = None,
    maps: Annotated[bool, typer.Option(help="Draw a picture for each slide.")] = True,
    method: opt.MethodOption = "panther",
    preset: opt.PresetOption = None,
    setting: opt.SetOption = None,
    slide_mpp: opt.SlideMppOption = None,
    encoder_name: opt.EncoderNameOption = None,
    mixed: opt.MixedOption = False,
    max_side: opt.MaxSideOption = 768,
    as_json: opt.JsonOption = False,
) -> None:
    """Compare prototypes with tissue classes: agreement, a class and a name for each, maps side by side."""
    from panther.aggregators import build
    from panther.explain.concordance.cohort import ConcordanceSettings, centroid_classes
    from panther.explain.concordance.write import WRITTEN
    from panther.explain.jobs import slide_jobs
    from panther.explain.names import read_names
    from panther.explain.scene import MapSettings
    from panther.storage.bags import list_bags
    from panther.storage.inputs import check_output_folder
    from panther.storage.prototypes import load_prototypes

    centroids = load_prototypes(prototypes)
    options = parse_settings(setting, preset=preset)
    build(method, centroids, options)  # refuses a setting that is not there before the work
    source = _source(probe, labels)
    named = read_names(names, len(centroids)) if names else {}
    drawn = MapSettings(method, options, named, max_side, slide_mpp)
    listing = list_bags(features, reading=common.reading(encoder_name, mixed))
    jobs, problems = slide_jobs(listing.refs, slides), dict(listing.problems)
    chosen = _positive(positive, source.classes)
    question = ConcordanceSettings(
        centroids, source, drawn, chosen, _by(by), _region(region, bool(chosen and maps), len(jobs))
    )
    centroid_classes(question)  # refuses a probe of another encoder, and --class-from centroid where that cannot be
    given = [file for job in jobs for file in (*job.ref.files, job.image)]
    check_output_folder(output, WRITTEN, given, prototypes, probe, labels, names)
    _run(question, jobs, problems, output, maps, as_json)


def _run(question: Any, jobs: list[Any], failures: dict[str, str], output: Path, maps: bool, as_json: bool) -> None:
    from panther.explain.concordance.cohort import Cohort, count_slide, look_at, name_prototypes
    from panther.explain.concordance.told import cohort_lines
    from panther.explain.concordance.write import saturation_note, tell, write_cohort

    counted = _over(partial(count_slide, question=question), jobs, failures, "counting")
    naming = name_prototypes(list(counted.values()), question)
    used = [(job, counted[job.sample]) for job in jobs if job.sample in counted]
    look = partial(look_at, question=question, naming=naming, folder=output if maps else None)
    looked = _over(look, used, failures, "looking")
    cohort = Cohort(question, tuple(counted.values()), naming, {one.slide: one for one in looked.values()})
    notes = [note for one in looked.values() for note in one.notes]
    if question.positive and not any(one.tumour for one in looked.values()):
        notes.append("No prototype is of a positive class, so there is no tumour prototype to compare.")
    notes += [note for note in (saturation_note(cohort),) if note]
    files = write_cohort(cohort, output, notes)
    files += [file for one in looked.values() for file in one.files]
    result = {"output": str(output), "files": [str(file) for file in files], **tell(cohort, notes)}
    common.report(result, cohort_lines(cohort, output, len(files)), failures, as_json=as_json, notes=notes)


def _over(function: Any, jobs: list[Any], failures: dict[str, str], what: str) -> dict[str, Any]:
    """Outcome of each slide by name; reasons of those that failed are added to ``failures``."""
    from panther.errors import InputError
    from panther.execution import collect, open_work

    with open_work(1, track=common.track) as work:
        done, own = collect(function, jobs, what, work)
    failures.update(own)
    if not done:
        # of this pass first: a slide that failed before is not why all that were left fail now
        reason = next(iter((own or failures).values()), "No file holds features.")
        raise InputError(reason if len(failures) < 2 else f"None of the {len(failures)} slides can be used. {reason}")
    return done


def _features(tiles: Path, settings: Any, encoder: str | None) -> Any:
    from dataclasses import replace

    from panther.encoder_names import same_encoder
    from panther.errors import InputError
    from panther.explain.concordance.probe_tiles import read_features

    labelled = read_features(tiles, settings.per_class, settings.seed)
    if not same_encoder(encoder, labelled.encoder):
        raise InputError(f"{tiles}: the features are of {labelled.encoder!r}, not of {encoder!r}; leave --encoder out.")
    return replace(labelled, encoder=labelled.encoder or encoder)


def _encoded(tiles: Path, settings: Any, output: Path, how: tuple[Any, ...], extract: Any) -> Any:
    """Labelled tiles of images, and failures; what a killed run had encoded lies hidden beside the output."""
    from panther.encoders import load_encoder
    from panther.encoders.extract import partial_folder
    from panther.encoders.pipeline import Pipeline
    from panther.explain.concordance.probe_tiles import encode_images, find_images

    images = find_images(tiles, settings.per_class, settings.seed)  # refuses before anything is loaded
    name, weights, device, precision = how
    with Pipeline(load_encoder(name, weights, device=device, precision=precision), extract) as pipeline:
        return encode_images(images, pipeline, partial_folder(output))


def _source(probe: Path | None, labels: Path | None) -> Any:
    from panther.errors import InputError
    from panther.explain.concordance.labels import ProbeLabels, read_labels
    from panther.explain.concordance.probe_file import load_probe

    if (probe is None) == (labels is None):
        raise InputError(
            "Give --classifier (a file of `panther tissue-classifier`) or --patch-labels (a CSV of patches), one of them."
        )
    return read_labels(labels) if labels else ProbeLabels(load_probe(probe), probe)  # type: ignore[arg-type]


def _positive(text: str | None, classes: tuple[str, ...]) -> tuple[int, ...]:
    from panther.errors import InputError

    asked = [name.strip() for name in (text or "").split(",") if name.strip()]
    unknown = [name for name in asked if name not in classes]
    if unknown or (text is not None and not asked) or len(set(asked)) == len(classes):
        wrong = f"there is no class {unknown[0]!r}" if unknown else "some classes, but not all, must be positive"
        raise InputError(f"--positive {text}: {wrong}; the classes are {', '.join(classes)}.")
    return tuple(sorted({classes.index(name) for name in asked}))


def _by(text: str) -> str:
    from panther.errors import InputError

    if text not in BY:
        raise InputError(f"--class-from is {' or '.join(BY)}, not {text!r}.")
    return text


def _region(text: str | None, drawn: bool, slides: int) -> tuple[float, float, float, float] | None:
    from panther.errors import InputError

    if text is None:
        return None
    if not drawn or slides != 1:
        raise InputError("--region enlarges a part of one slide's heatmaps: give one feature file, and --positive.")
    try:
        x, y, w, h = (float(number) for number in text.split(","))
    except ValueError:
        w = h = x = y = 0.0
    if not (0 < w < 1e9 and 0 < h < 1e9 and abs(x) < 1e9 and abs(y) < 1e9):
        raise InputError(
            f"--region {text!r} is not understood; give x,y,w,h in level-0 pixels, e.g. 2000,1000,4000,3000."
        )
    return x, y, w, h

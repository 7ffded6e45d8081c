"""`panther tissue-classifier` and `panther concordance`: prototypes beside tissue classes."""

from pathlib import Path
from typing import Annotated

import typer

from panther.cli import _common as common
from panther.cli import _options as opt
from panther.cli._parsers import parse_settings


def train_classifier(
    tiles: Annotated[
        Path,
        typer.Argument(
            help="Folder with a sub-folder of tile images (or feature files) per class.",
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
    workers: opt.ProcessesOption = 0,
    as_json: opt.JsonOption = False,
) -> None:
    """Train a classifier of tissue on labelled tiles: logistic regression on an encoder's features, cross-validated."""
    from panther.encoders.pipeline import ExtractSettings
    from panther.explain.concordance import ClassifierSettings, train_tissue_classifier
    from panther.explain.concordance.write import classifier_lines, classifier_notes

    found, failures = train_tissue_classifier(
        tiles,
        output,
        ClassifierSettings(per_class, folds, seed),
        encoder=encoder,
        extract=ExtractSettings(batch, workers),
        weights=weights,
        device=common.checked_device(device),
        precision=precision,
    )
    about = {"classes": list(found.classes), "encoder": found.encoder, "dim": found.dim}
    result = {"output": str(output), **about, "hash": found.content_hash(), "settings": dict(found.settings)}
    common.report(
        {**result, **found.evaluation},
        classifier_lines(found, output),
        failures,
        as_json=as_json,
        notes=classifier_notes(found),
    )


def compare(
    features: opt.FeaturesArgument,
    prototypes: opt.PrototypesOption,
    output: opt.FolderOption,
    classifier: Annotated[Path | None, typer.Option(help="File of `panther tissue-classifier`.")] = None,
    patch_labels: Annotated[Path | None, typer.Option(help="Instead: CSV of patches, slide_id,x,y,label.")] = None,
    positive: Annotated[
        str | None, typer.Option(help="Classes that are tumour, e.g. aca,scc: its heatmaps side by side.")
    ] = None,
    slides: opt.SlidesOption = None,
    names: opt.NamesOption = None,
    class_from: Annotated[
        str, typer.Option(help="What gives a prototype its class: members (majority) or centroid.")
    ] = "members",
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
    workers: opt.WorkersOption = "0",
    device: opt.DeviceOption = "auto",
    as_json: opt.JsonOption = False,
) -> None:
    """Compare prototypes with tissue classes: agreement, a class and a name for each, maps side by side."""
    from panther.explain.concordance import concordance
    from panther.explain.concordance.write import concordance_lines, to_dict
    from panther.explain.scene import MapSettings
    from panther.storage.bags import list_bags

    options = parse_settings(setting, preset=preset)
    listing = list_bags(features, reading=common.reading(encoder_name, mixed))
    with common.open_work(workers, listing.refs, device) as work:
        found = concordance(
            listing,
            prototypes,
            classifier,
            patch_labels,
            slides,
            names,
            output,
            positive=[] if positive is None else [name.strip() for name in positive.split(",")],
            class_from=class_from,
            region=_region(region),
            maps=maps,
            settings=MapSettings(method, options, max_side=max_side, slide_mpp=slide_mpp),
            work=work,
        )
    result = {"output": str(output), "files": [str(file) for file in found.files], **to_dict(found)}
    common.report(result, concordance_lines(found, output), found.failures, as_json=as_json, notes=found.notes)


def _region(text: str | None) -> tuple[float, ...] | None:
    from panther.errors import InputError

    if text is None:
        return None
    try:
        x, y, w, h = (float(number) for number in text.split(","))
    except ValueError:
        w = h = x = y = 0.0
    if not (0 < w < 1e9 and 0 < h < 1e9 and abs(x) < 1e9 and abs(y) < 1e9):
        raise InputError(
            f"--region {text!r} is not understood; give x,y,w,h in level-0 pixels, e.g. 2000,1000,4000,3000."
        )
    return x, y, w, h

"""`panther tissue-classifier` and `panther concordance`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from panther.errors import InputError, note, warn_left_out
from panther.verbs import parameters as p
from panther.verbs import verb

if TYPE_CHECKING:
    from panther.explain.concordance import Concordance
    from panther.explain.concordance.tissue_classifier import TissueClassifier


@verb("tissue-classifier", "Look")
def train_tissue_classifier(
    tiles: Annotated[Path, p.option(metavar="TILES")],
    output: p.RequiredFile = None,
    *,
    encoder_name: p.EncoderName = None,
    per_class: Annotated[int, Field(ge=2, strict=True), p.option(panel=p.METHOD)] = 500,
    folds: Annotated[int, Field(ge=2, strict=True), p.option(panel=p.METHOD)] = 5,
    seed: p.Seed = 0,
) -> "TissueClassifier":
    """Train a classifier of tissue on the features of labelled tiles: logistic regression, cross-validated.

    Parameters
    ----------
    tiles : path
        Folder with one feature file (or one folder of them) per class: `OUTPUT/tiles/features_ENCODER` of `panther slides`.
    output : path, optional
        File to write.
    encoder_name : str, optional
        Name of the encoder, if the files give none or a wrong one.
    per_class : int, default=500
        Tiles of each class at most, drawn at random.
    folds : int, default=5
        Folds of the cross-validation that judges the classifier.
    seed : int, default=0
        Same seed and input: same result.

    Returns
    -------
    TissueClassifier
        Classes of patches by ``label(bag)``, and the cross-validated ``evaluation``.
    """
    from dataclasses import replace

    from panther.explain.concordance import tissue_classifier as tissue
    from panther.storage.bags import Reading
    from panther.store import check_output

    if output is not None:
        check_output(output, tiles, tiles.rglob("*"))
    labelled = tissue.read_features(tiles, per_class, seed, Reading(encoder_name))
    classifier = tissue.fit_classifier(labelled, folds, seed)
    classifier = replace(classifier, settings={**classifier.settings, "per_class": per_class})
    if output is not None:
        tissue.save_classifier(classifier, output)
    if labelled.groups is None:
        note("tiles of one slide may be in training and test of the cross-validation: their slides are not known")
    return classifier


@verb("concordance", "Look")
def concordance(
    features: p.Features,
    prototypes: p.RequiredPrototypes,
    classifier: Annotated[
        Any, p.option("File of `panther tissue-classifier`; or give --patch-labels.", text=Path, metavar="FILE")
    ] = None,
    patch_labels: Annotated[Any, p.option(text=Path, metavar="FILE")] = None,
    slides: p.SlideImages = None,
    names: p.PrototypeNames = None,
    output: p.RequiredFolder = None,
    *,
    positive: Annotated[p.Names, p.option(panel=p.PICTURES)] = None,
    maps: Annotated[bool, p.option(panel=p.PICTURES, negative="--no-maps")] = True,
    method: p.AssigningMethod = "panther",
    preset: p.Preset = None,
    slide_mpp: p.SlideMpp = None,
    encoder_name: p.EncoderName = None,
    allow_mixed_resolution: p.MixedResolution = False,
    max_side: p.MaxSide = 768,
    workers: p.Workers = "auto",
    device: p.Device = "auto",
    **settings: Any,
) -> "Concordance":
    """Compare prototypes with tissue classes: agreement, a class and a name for each, maps side by side.

    Parameters
    ----------
    features : path, list, mapping or Listing
        Folder of feature files, or bags in memory.
    prototypes : Prototypes or path
        What is compared.
    classifier : TissueClassifier or path, optional
        File of `panther tissue-classifier`; or give ``patch_labels``.
    patch_labels : path or DataFrame, optional
        Table of patches labelled by people: slide_id, x, y (upper left corner), label.
    slides : path or mapping, optional
        Images of the slides, for the pictures.
    names : path or mapping, optional
        Names of the prototypes: a YAML file, or a dictionary by number.
    output : folder, optional
        Where tables, suggested names and pictures are written.
    positive : list of str, optional
        Classes that are tumour, e.g. aca,scc: their probability is compared with the posterior of their prototypes, patch by patch.
    maps : bool, default=True
        Draw every slide with coordinates into ``output``.
    method, preset : str, optional
        `panther`, `ot`, `h2t` or `protocounts`; `paper`, `published-code` or `calibrated`.
    slide_mpp : float, optional
        True resolution of the images, um/px, where their tags are wrong.
    encoder_name : str, optional
        Name of the encoder, if the files give none or a wrong one.
    allow_mixed_resolution : bool
        Whether patches of different resolutions are accepted.
    max_side : int, default=768
        Longest side of a picture, pixels.
    workers, device
        Processes, and where patches are assigned (see :func:`panther.embed_cohort`).
    **settings
        Settings of the method, e.g. ``temperature=10``.

    Returns
    -------
    Concordance
        ``agreement`` over all patches, ``classes`` of the prototypes, ``slides`` one by one, ``notes`` and ``failures``.

    Examples
    --------
    >>> import pandas as pd, torch, panther
    >>> bag = panther.Bag("a", torch.eye(2).repeat(3, 1), lambda: torch.arange(12).reshape(6, 2))
    >>> labels = pd.DataFrame({"slide_id": "a", "x": range(0, 12, 2), "y": range(1, 13, 2), "label": ["fat", "gland"] * 3})
    >>> agreed = panther.concordance([bag], panther.Prototypes(torch.eye(2)), patch_labels=labels)
    >>> agreed.agreement.accuracy
    1.0
    """
    from dataclasses import replace
    from functools import partial

    from panther.aggregators import build
    from panther.engine import collect, open_work
    from panther.explain import concordance as compared
    from panther.explain.concordance.tissue_classifier import TissueClassifier, load_classifier, read_labels
    from panther.explain.scene import MapSettings, refuse_nothing, slide_jobs
    from panther.storage.bags import Reading, as_bags
    from panther.storage.prototypes import as_prototypes
    from panther.store import check_output_folder

    if (classifier is None) == (patch_labels is None):
        raise InputError("classifier: expected a classifier or `patch_labels`, one of them")
    fitted = as_prototypes(prototypes)
    drawing = MapSettings(method, ({} if preset is None else {"preset": preset}) | settings, max_side, slide_mpp).named(
        names, len(fitted)
    )
    build(method, fitted, drawing.options)  # refuses a wrong setting before the work
    if patch_labels is not None:
        labels: Any = read_labels(patch_labels)
    else:
        labels = classifier if isinstance(classifier, TissueClassifier) else load_classifier(classifier)
        labels.check("The prototypes", fitted.dim_in, fitted.encoder)
    listing = as_bags(features, Reading(encoder_name, allow_mixed_resolution))
    jobs, failures = slide_jobs(listing.refs, slides), dict(listing.problems)
    unknown = [name for name in positive or () if name not in labels.classes]
    if unknown or len(set(positive or ())) == len(labels.classes):
        raise InputError(
            f"positive: found {','.join(unknown or labels.classes)}, expected some, not all, of {', '.join(labels.classes)}"
        )
    chosen = tuple(sorted({labels.classes.index(name) for name in positive or ()}))
    how = compared.ConcordanceSettings(fitted, labels, drawing, chosen)
    if output is not None:
        files = [file for job in jobs for file in job.files]
        check_output_folder(output, compared.WRITTEN, files, prototypes, classifier, patch_labels, names)
    with open_work(workers, listing.refs, device=device) as work:
        how = replace(how, maps=replace(drawing, device=work.device))
        counted, failed = collect(partial(compared.count_slide, settings=how), jobs, "counting", work)
        failures |= failed
        refuse_nothing(counted, {**failed, **failures}, "can be used")
        classes = compared.name_prototypes(counted.values(), how)
        pairs = [(job, counted[job.sample]) for job in jobs if job.sample in counted]
        folder = output if maps else None
        compare = partial(compared.compare_slide, settings=how, classes=classes, folder=folder)
        done, failed = collect(compare, pairs, "comparing", work)
    # of this pass first: a slide that failed before is not why all that were left fail now
    refuse_nothing(done, {**failed, **failures}, "can be used")
    failures |= failed
    result = compared.Concordance(
        how, classes, {one.slide: one for one in (counted | done).values()}, failures=failures
    )
    notes = [text for one in done.values() for text in one.notes]
    if chosen and not classes.tumour:
        notes.append("No prototype is of a positive class, so there is no tumour prototype to compare.")
    result = replace(result, notes=tuple(notes))
    if output is not None:
        files = [*compared.write_concordance(result, output)]
        result = replace(result, files=(*files, *(file for one in done.values() for file in one.files)))
    note(*result.notes)
    warn_left_out("Left out of the concordance", failures)
    return result

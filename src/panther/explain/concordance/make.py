"""Prototypes beside tissue classes, from features to agreement, names and pictures."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from panther.aggregators import build
from panther.engine import HERE, Work, collect
from panther.errors import InputError
from panther.explain.concordance.compare import (
    Concordance,
    ConcordanceSettings,
    centroid_classes,
    count_slide,
    judge_slide,
    name_prototypes,
)
from panther.explain.concordance.labels import PatchLabels, read_labels
from panther.explain.concordance.tissue_classifier import TissueClassifier, load_classifier
from panther.explain.concordance.write import WRITTEN, saturation_note, write_concordance
from panther.explain.names import Names
from panther.explain.scene import Images, MapSettings, refuse_nothing, slide_jobs
from panther.storage.bags import BagsLike, as_bags
from panther.storage.prototypes import as_prototypes
from panther.store import check_output_folder
from panther.types import Prototypes

if TYPE_CHECKING:
    import pandas as pd

CLASS_FROM = ("members", "centroid")


def concordance(
    features: BagsLike,
    prototypes: Prototypes | Path | str,
    classifier: TissueClassifier | Path | str | None = None,
    patch_labels: "Path | str | pd.DataFrame | None" = None,
    slides: Images = None,
    names: Names = None,
    output: Path | str | None = None,
    *,
    positive: Sequence[str] = (),
    class_from: str = CLASS_FROM[0],
    region: Sequence[float] | None = None,
    maps: bool = True,
    settings: MapSettings | None = None,
    work: Work = HERE,
) -> Concordance:
    """Compare prototypes with tissue classes: how far they agree, and a class and a name for each prototype.

    Parameters
    ----------
    features : folder, file or list of bags
        Features, in any form that `as_bags` takes.
    prototypes : Prototypes or path
        What is compared.
    classifier : TissueClassifier or path, optional
        Gives patches their classes; or give ``patch_labels``.
    patch_labels : path or DataFrame, optional
        Classes that people gave: a table with the columns slide_id, x, y (upper left corner) and label.
    slides : path or mapping, optional
        Images of the slides, for the pictures.
    names : path or mapping, optional
        Names of the prototypes.
    output : folder, optional
        Where tables, suggested names and pictures are written.
    positive : sequence of str
        Classes that are tumour: the posterior of their prototypes is compared with the classes' probability, patch by patch.
    class_from : {"members", "centroid"}
        What gives a prototype its class: the majority of its patches, or its centroid.
    region : (x, y, width, height), optional
        Part of the only slide to enlarge, in level-0 pixels; by default where most tumour is.
    maps : bool
        Whether every slide with coordinates gets pictures in ``output``.
    settings : MapSettings, optional
        Method, resolutions and size of the pictures.
    work : Work
        How the work is run.

    Returns
    -------
    Concordance
        ``agreement`` over all patches, ``classes`` of the prototypes, ``slides`` one by one, ``notes`` and ``failures``.

    Examples
    --------
    >>> import pandas as pd, torch, panther
    >>> bag = panther.Bag("a", torch.eye(2).repeat(3, 1), lambda: torch.arange(12).reshape(6, 2))
    >>> labels = pd.DataFrame({"slide_id": "a", "x": range(0, 12, 2), "y": range(1, 13, 2), "label": ["fat", "gland"] * 3})
    >>> found = panther.concordance([bag], panther.Prototypes(torch.eye(2)), patch_labels=labels)
    >>> found.agreement.accuracy
    1.0
    """
    centroids, drawing = as_prototypes(prototypes), settings or MapSettings(max_side=768)
    build(drawing.method, centroids, drawing.options)  # refuses a setting that is not there before the work
    labels = _labels(classifier, patch_labels)
    drawing = replace(drawing.named(names, len(centroids)), device=work.device)
    listing = as_bags(features)
    jobs, failures = slide_jobs(listing.refs, slides), dict(listing.problems)
    if class_from not in CLASS_FROM:
        raise InputError(f"`class_from=` is {' or '.join(CLASS_FROM)}, not {class_from!r}.")
    chosen = _positive(positive, labels.classes)
    window = None if region is None else tuple(region)
    if window is not None and not (chosen and maps and len(jobs) == 1):
        raise InputError("`region=` enlarges a part of one slide's heatmaps: give one feature file, and `positive=`.")
    how = ConcordanceSettings(centroids, labels, drawing, chosen, class_from, window)  # type: ignore[arg-type]
    centroid_classes(how)  # refuses a classifier of another encoder, and `class_from=centroid` where that cannot be
    folder = None if output is None else Path(output)
    if folder is not None:
        given = [file for job in jobs for file in job.files]
        check_output_folder(folder, WRITTEN, given, prototypes, classifier, patch_labels, names)
    counted = _over(partial(count_slide, settings=how), jobs, "counting", failures, work)
    classes = name_prototypes(list(counted.values()), how)
    pairs = [(job, counted[job.sample]) for job in jobs if job.sample in counted]
    judge = partial(judge_slide, settings=how, classes=classes, folder=folder if maps else None)
    judged = _over(judge, pairs, "judging", failures, work)
    found = Concordance(how, tuple(counted.values()), classes, {one.slide: one for one in judged.values()})
    notes = [note for one in judged.values() for note in one.notes]
    if chosen and not classes.tumour:
        notes.append("No prototype is of a positive class, so there is no tumour prototype to compare.")
    found = replace(found, notes=(*notes, *saturation_note(found)), failures=failures)
    files = [] if folder is None else write_concordance(found, folder)
    return replace(found, files=(*files, *(file for one in judged.values() for file in one.files)))


def _labels(
    classifier: TissueClassifier | Path | str | None, table: "Path | str | pd.DataFrame | None"
) -> TissueClassifier | PatchLabels:
    if (classifier is None) == (table is None):
        raise InputError(
            "Give `classifier=` (a tissue classifier) or `patch_labels=` (a table of patches), one of them."
        )
    if table is not None:
        return read_labels(table)
    return classifier if isinstance(classifier, TissueClassifier) else load_classifier(str(classifier))


def _positive(names: Sequence[str], classes: tuple[str, ...]) -> tuple[int, ...]:
    unknown = [name for name in names if name not in classes]
    if unknown or len(set(names)) == len(classes):
        wrong = f"there is no class {unknown[0]!r}" if unknown else "some classes, but not all, must be positive"
        raise InputError(f"`positive={','.join(names)}`: {wrong}; the classes are {', '.join(classes)}.")
    return tuple(sorted({classes.index(name) for name in names}))


def _over(
    function: Callable[[Any], Any], items: Sequence[Any], what: str, failures: dict[str, str], work: Work
) -> dict[str, Any]:
    """Result of each slide by name; reasons of those that failed are added to ``failures``."""
    done, own = collect(function, items, what, work)
    failures.update(own)
    # of this pass first: a slide that failed before is not why all that were left fail now
    refuse_nothing(done, {**own, **failures}, "can be used")
    return done

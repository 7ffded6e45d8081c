"""Prototypes against classes, slide by slide: first the slides are counted, then prototypes named, then each slide is judged."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from panther.aggregators import build
from panther.charts.style import save
from panther.errors import InputError
from panther.explain.concordance import draw as drawing
from panther.explain.concordance.agreement import (
    UNKNOWN,
    Agreement,
    TumourMatch,
    Window,
    agreement,
    contingency,
    left_out_accuracy,
    majority,
    match_tumour,
    tissue_of,
)
from panther.explain.concordance.labels import PatchLabels
from panther.explain.concordance.tissue_classifier import TissueClassifier
from panther.explain.maps import map_slide
from panther.explain.scene import MapSettings, SlideJob, assign
from panther.types import Prototypes


@dataclass(frozen=True)
class ConcordanceSettings:
    """What is compared, and how it is drawn; the same for all slides."""

    prototypes: Prototypes
    labels: TissueClassifier | PatchLabels  # where the patches' classes come from
    maps: MapSettings
    positive: tuple[int, ...] = ()  # classes that are tumour
    class_from: str = "members"  # what gives a prototype its class: members or centroid
    region: Window | None = None  # to enlarge; None: where most tumour is

    def tumour_probability(self, probabilities: np.ndarray) -> np.ndarray:
        """Probability (N,) that a patch is of a positive class; NaN stays NaN."""
        return probabilities[:, list(self.positive)].sum(1)


@dataclass(frozen=True)
class SlideCounts:
    """One slide after the first pass."""

    slide: str
    counts: np.ndarray  # (C, K) patches
    patches: int  # also those without a label


@dataclass(frozen=True)
class PrototypeClasses:
    """Classes of the prototypes, UNKNOWN where there is none."""

    counts: np.ndarray  # (C, K) of the cohort
    members: np.ndarray  # (C,) commonest class of the members
    centroid: np.ndarray | None  # (C,) class of the centroid
    chosen: np.ndarray  # (C,) the one in use
    tumour: tuple[int, ...] = ()  # prototypes of a positive class

    @property
    def share(self) -> np.ndarray:
        """Share of members that have the prototype's class, (C,); 0 where there are none."""
        rows = np.arange(len(self.counts))
        return np.where(self.chosen == UNKNOWN, 0, self.counts[rows, self.chosen]) / np.maximum(self.counts.sum(1), 1)


@dataclass(frozen=True)
class SlideAgreement:
    """One slide after the second pass."""

    slide: str
    agreement: Agreement
    tumour: TumourMatch | None = None
    files: tuple[Path, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Concordance:
    """How far prototypes and tissue classes agree, over the cohort and on each slide."""

    settings: ConcordanceSettings
    counts: tuple[SlideCounts, ...]
    classes: PrototypeClasses
    slides: Mapping[str, SlideAgreement] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    failures: Mapping[str, str] = field(default_factory=dict)  # slide -> sentence
    files: tuple[Path, ...] = ()  # that were written

    @cached_property
    def agreement(self) -> Agreement:
        """Over all patches, with the classes in use."""
        return agreement(self.classes.counts, self.classes.chosen)

    @cached_property
    def accuracy_by(self) -> dict[str, float | None]:
        """Share of patches that agree by each way of naming."""
        ways = {"members": self.classes.members, "centroid": self.classes.centroid}
        found = {
            way: agreement(self.classes.counts, labels).accuracy for way, labels in ways.items() if labels is not None
        }
        return {**found, "members_of_other_slides": left_out_accuracy([one.counts for one in self.counts])}


def count_slide(job: SlideJob, settings: ConcordanceSettings) -> SlideCounts:
    """First pass: patches of each prototype and class."""
    bag, prototypes = job.ref.open(), settings.prototypes
    module = build(settings.maps.method, prototypes, settings.maps.options)
    labels = assign(prototypes.prepared(bag), module, settings.maps.device).assignment.argmax(1).numpy()
    tissue = tissue_of(settings.labels.label(bag))
    counts = contingency(labels, tissue, (len(prototypes), len(settings.labels.classes)))
    return SlideCounts(bag.slide_id, counts, len(bag))


def centroid_classes(settings: ConcordanceSettings) -> np.ndarray | None:
    """Classes (C,) of the centroids, None where they are not defined; refused where the prototypes are to be named by them."""
    classes = settings.labels.label_prototypes(settings.prototypes)
    if classes is None and settings.class_from == "centroid":
        raise InputError(
            "`class_from=centroid` needs a tissue classifier and prototypes of features that were not normalised; "
            "use `class_from=members`."
        )
    return classes


def name_prototypes(counted: Sequence[SlideCounts], settings: ConcordanceSettings) -> PrototypeClasses:
    """Classes of the prototypes from all slides' counts, and from their centroids where they are defined."""
    counts = np.sum([one.counts for one in counted], 0)
    members, centroid = majority(counts), centroid_classes(settings)
    chosen = members if centroid is None or settings.class_from == "members" else centroid
    return PrototypeClasses(counts, members, centroid, chosen, tumour_prototypes(chosen, settings))


def tumour_prototypes(chosen: np.ndarray, settings: ConcordanceSettings) -> tuple[int, ...]:
    """Prototypes of a positive class: by their given name where it is, or is before its first comma, a class; else by their class.

    Only whole names of classes count: "stroma, with tumour" is stroma, and "no tumour" is not tumour.
    """
    found = []
    for c, tissue in enumerate(chosen.tolist()):
        given = settings.maps.names.get(c, "").casefold()
        names = {given.strip(), given.partition(",")[0].strip()}
        named = {k for k, word in enumerate(settings.labels.classes) if word.casefold() in names}
        if (named or {tissue}) & set(settings.positive):
            found.append(c)
    return tuple(found)


def judge_slide(
    slide: tuple[SlideJob, SlideCounts], settings: ConcordanceSettings, classes: PrototypeClasses, folder: Path | None
) -> SlideAgreement:
    """Second pass: one slide's agreement, its tumour prototype, and its pictures where ``folder`` is given."""
    job, counted = slide
    own = agreement(counted.counts, classes.chosen)
    if folder is None and not classes.tumour:
        return SlideAgreement(counted.slide, own)
    bag = job.ref.open()
    probabilities = settings.labels.label(bag)
    tumour = settings.tumour_probability(probabilities)
    if folder is None or bag.places is None:
        missing = f"{counted.slide}: no coordinates in the file, so there are no pictures of it."
        module = build(settings.maps.method, settings.prototypes, settings.maps.options)
        rows, weights = assign(settings.prototypes.prepared(bag), module, settings.maps.device)
        match = match_tumour(rows.float().numpy(), weights.numpy(), tumour, classes.tumour)
        return SlideAgreement(counted.slide, own, match, (), () if folder is None else (missing,))
    slide_map = map_slide(bag, settings.prototypes, settings.maps, job.image)
    match = match_tumour(slide_map.assignment, slide_map.weights, tumour, classes.tumour)
    files = [folder / f"{slide_map.slide}.classes.png"]
    maps = drawing.class_maps(slide_map, classes.chosen, tissue_of(probabilities), settings.labels.classes)
    save(drawing.draw_classes(slide_map, *maps), files[0])
    if match is not None:
        files.append(folder / f"{slide_map.slide}.tumour.png")
        heat = drawing.TumourMap(slide_map, tumour, match, classes.tumour, job.image, settings.region)
        words = " + ".join(settings.labels.classes[k] for k in settings.positive)
        save(drawing.draw_tumour(heat, settings.maps, words), files[-1])
    return SlideAgreement(slide_map.slide, own, match, tuple(files), job.notes)

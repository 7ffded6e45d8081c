"""Agreement over a cohort, in two passes over its slides: count, name the prototypes, then look at each slide again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from panther.aggregators import build
from panther.errors import InputError
from panther.explain.assign import assign
from panther.explain.concordance import draw as drawing
from panther.explain.concordance.labels import Labels, tissue_of
from panther.explain.concordance.mathematics import (
    UNKNOWN,
    Agreement,
    TumourMatch,
    Window,
    agreement,
    contingency,
    left_out_accuracy,
    majority,
    match_tumour,
)
from panther.explain.draw import save
from panther.explain.jobs import SlideJob
from panther.explain.maps import map_slide
from panther.explain.scene import MapSettings
from panther.types import Prototypes


@dataclass(frozen=True)
class ConcordanceSettings:
    """What is compared, and how it is drawn; the same for all slides."""

    prototypes: Prototypes
    labels: Labels
    maps: MapSettings
    positive: tuple[int, ...] = ()  # classes that are tumour
    by: str = "members"  # what gives a prototype its class: members or centroid
    region: Window | None = None  # to enlarge; None: where most tumour is


@dataclass(frozen=True)
class SlideCounts:
    """One slide after the first pass."""

    slide: str
    counts: np.ndarray  # (C, K) patches
    weights: np.ndarray  # (C,), pi
    patches: int  # also those without a label


@dataclass(frozen=True)
class PrototypeClasses:
    """Classes of the prototypes, UNKNOWN where there is none."""

    counts: np.ndarray  # (C, K) of the cohort
    members: np.ndarray  # (C,) commonest class of the members
    centroid: np.ndarray | None  # (C,) class of the centroid
    chosen: np.ndarray  # (C,) the one in use

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


@dataclass(frozen=True)
class Cohort:
    """All that is told and written."""

    question: ConcordanceSettings
    counted: tuple[SlideCounts, ...]
    naming: PrototypeClasses
    looked: Mapping[str, SlideAgreement] = field(default_factory=dict)

    @property
    def agreement(self) -> Agreement:
        """Over all patches, with the classes in use."""
        return agreement(self.naming.counts, self.naming.chosen)

    @property
    def others(self) -> dict[str, float | None]:
        """Share of patches that agree by the other ways of naming."""
        ways = {"members": self.naming.members, "centroid": self.naming.centroid}
        found = {
            way: agreement(self.naming.counts, labels).accuracy for way, labels in ways.items() if labels is not None
        }
        return {**found, "members_of_other_slides": left_out_accuracy([one.counts for one in self.counted])}


def count_slide(job: SlideJob, question: ConcordanceSettings) -> SlideCounts:
    """First pass: patches of each prototype and class."""
    bag, prototypes = job.ref.open(), question.prototypes
    module = build(question.maps.method, prototypes, question.maps.options)
    assigned = assign(prototypes.prepared(bag), module)
    tissue = tissue_of(question.labels.of(bag))
    shape = len(prototypes), len(question.labels.classes)
    counts = contingency(assigned.assignment.argmax(1).numpy(), tissue, shape)
    return SlideCounts(bag.slide_id, counts, assigned.weights.numpy(), len(bag))


def centroid_classes(question: ConcordanceSettings) -> np.ndarray | None:
    """Classes (C,) of the centroids, None where that cannot be said; refused where the prototypes are to be named by them."""
    classes = question.labels.of_prototypes(question.prototypes)
    if classes is None and question.by == "centroid":
        raise InputError(
            "`by=centroid` needs a probe and prototypes of features that were not normalised; use `by=members`."
        )
    return classes


def name_prototypes(counted: Sequence[SlideCounts], question: ConcordanceSettings) -> PrototypeClasses:
    """Classes of the prototypes from all slides' counts, and from their centroids where that can be said."""
    counts = np.sum([one.counts for one in counted], 0)
    members, centroid = majority(counts), centroid_classes(question)
    return PrototypeClasses(
        counts, members, centroid, members if centroid is None or question.by == "members" else centroid
    )


def tumour_prototypes(naming: PrototypeClasses, question: ConcordanceSettings) -> list[int]:
    """Prototypes of a positive class: by their given name where it is, or is before its first comma, a class; else by their class.

    Only whole names of classes count: "stroma, with tumour" is stroma, and "no tumour" is not tumour.
    """
    found = []
    for c, tissue in enumerate(naming.chosen.tolist()):
        given = question.maps.names.get(c, "").casefold()
        said = {given.strip(), given.partition(",")[0].strip()}
        named = {k for k, word in enumerate(question.labels.classes) if word.casefold() in said}
        if (named or {tissue}) & set(question.positive):
            found.append(c)
    return found


def look_at(
    slide: tuple[SlideJob, SlideCounts], question: ConcordanceSettings, naming: PrototypeClasses, folder: Path | None
) -> SlideAgreement:
    """Second pass: one slide's agreement, its tumour prototype, and its pictures where ``folder`` is given."""
    job, counted = slide
    bag = job.ref.open()
    own = agreement(counted.counts, naming.chosen)
    if folder is None and not question.positive:
        return SlideAgreement(bag.slide_id, own)
    probabilities = question.labels.of(bag)
    if bag.places is None or folder is None:
        notes = (
            () if folder is None else (f"{bag.slide_id}: no coordinates in the file, so there are no pictures of it.",)
        )
        module = build(question.maps.method, question.prototypes, question.maps.options)
        rows, weights = assign(question.prototypes.prepared(bag), module)
        match = _tumour(rows.float().numpy(), weights.numpy(), probabilities, question, naming)
        return SlideAgreement(bag.slide_id, own, match, (), notes)
    found = map_slide(bag, question.prototypes, question.maps, job.image)
    match = _tumour(found.assignment, found.weights, probabilities, question, naming)
    files = [folder / f"{found.slide}.classes.png"]
    classes = drawing.class_maps(found, naming.chosen, tissue_of(probabilities), question.labels.classes)
    save(drawing.draw_classes(found, *classes), files[0])
    if match is not None:
        files.append(folder / f"{found.slide}.tumour.png")
        tumour = tuple(tumour_prototypes(naming, question))
        heat = drawing.TumourMap(found, _positive(probabilities, question), match, tumour, job.image, question.region)
        told = " + ".join(question.labels.classes[k] for k in question.positive)
        save(drawing.draw_tumour(heat, question.maps, told), files[-1])
    return SlideAgreement(found.slide, own, match, tuple(files), job.notes)


def _tumour(
    rows: np.ndarray,
    weights: np.ndarray,
    probabilities: np.ndarray,
    question: ConcordanceSettings,
    naming: PrototypeClasses,
) -> TumourMatch | None:
    tumour = tumour_prototypes(naming, question) if question.positive else []
    if not tumour:
        return None
    return match_tumour(rows, weights, _positive(probabilities, question), tumour)


def _positive(probabilities: np.ndarray, question: ConcordanceSettings) -> np.ndarray:
    """Probability (N,) that a patch is of a positive class; NaN stays NaN."""
    return probabilities[:, list(question.positive)].sum(1)

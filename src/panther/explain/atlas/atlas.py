"""The atlas of a cohort's prototypes: what each looks like, how much there is of it, in whom, and beside what."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from panther.aggregators import build
from panther.engine import HERE, Work, stream
from panther.evaluation.intervals import Interval
from panther.explain.atlas.exemplars import CHOOSE, Exemplar, Place, by_slide, read_patches
from panther.explain.atlas.shares import (
    Factor,
    GroupShare,
    ShareTest,
    co_occurrence,
    group_shares,
    mean_intervals,
    patient_means,
    share_tests,
)
from panther.explain.atlas.worker import EVEN, AtlasJob, AtlasSettings, SlideFacts, describe_slide
from panther.explain.names import colours, label
from panther.explain.scene import refuse_nothing
from panther.explain.touching import Touching, neighbour_sentences, no_touching
from panther.types import Prototypes

FEW_SLIDES = 10  # below it correlations over slides are mostly chance


@dataclass(frozen=True)
class Atlas:
    """Everything that files and pictures are made of; arrays are in the order of slides and prototypes."""

    slides: tuple[str, ...]
    patients: tuple[str, ...]  # of each slide
    weights: np.ndarray  # (n, C), pi
    members: np.ndarray  # (n, C), patches whose largest share it is
    shares: tuple[Interval, ...]  # (C,), mean over patients
    groups: tuple[GroupShare, ...]
    tests: tuple[ShareTest, ...]
    cooccurrence: np.ndarray  # (C, C), NaN where it is not defined
    touching: Touching
    exemplars: tuple[Exemplar, ...]  # by prototype and kind, the first ones first
    settings: AtlasSettings
    prototypes_hash: str
    pictures: Mapping[int, np.ndarray] = field(default_factory=dict)  # index of the exemplar -> pixels (s, s, 3)
    notes: tuple[str, ...] = ()
    failures: Mapping[str, str] = field(default_factory=dict)  # slide -> sentence
    source: Prototypes | None = None  # kept beside the atlas, so that other prototypes can be told from its own
    files: tuple[Path, ...] = ()  # that were written

    @property
    def prototypes(self) -> int:
        """Their number C."""
        return int(self.weights.shape[1])

    @property
    def names(self) -> Mapping[int, str]:
        """Names that people gave."""
        return self.settings.maps.names

    def title(self, prototype: int) -> str:
        """Prototype's number and name."""
        return label(prototype, dict(self.names))

    @cached_property
    def colours(self) -> list[str]:
        """Colour of each prototype, #RRGGBB: the one that people gave it or its group, else the palette's."""
        return colours(self.settings.maps.namings, self.prototypes)

    def neighbours_in_words(self) -> list[str]:
        """Which prototypes touch clearly more or less often than chance, over all slides."""
        return neighbour_sentences(self.touching, [self.title(c) for c in range(self.prototypes)])

    def chosen(self, prototype: int, kind: str) -> list[int]:
        """Indices of a prototype's exemplars of one kind."""
        return [i for i, one in enumerate(self.exemplars) if one.prototype == prototype and one.kind == kind]


def atlas_of(
    jobs: Sequence[AtlasJob],
    prototypes: Prototypes,
    settings: AtlasSettings | None = None,
    factors: Sequence[Factor] = (),
    *,
    work: Work = HERE,
) -> Atlas:
    """Walk the slides once, keeping a few candidates per prototype, then sum up over patients and read the exemplars' pixels."""
    settings = settings or AtlasSettings()
    settings = replace(settings, maps=replace(settings.maps, device=work.device))
    # refuses a setting that is not there before the work
    build(settings.maps.method, prototypes, settings.maps.options)
    pool = Pool(len(prototypes), settings)
    failures: dict[str, str] = {}
    describe = partial(describe_slide, prototypes=prototypes, settings=settings)
    for _, slide in stream(describe, jobs, "looking at patches", work, failures):
        pool.add(slide)
    refuse_nothing(pool.slides, failures, "could be read")
    atlas = summed_up(pool, prototypes, settings, factors, failures)
    return _with_pictures(atlas, {job.sample: job.image for job in jobs if job.image}, work)


class Pool:
    """What is kept while slides stream by: rows of numbers, and at most as many candidates as will be shown."""

    def __init__(self, count: int, settings: AtlasSettings) -> None:
        self.number = settings.exemplars
        self.slides: list[str] = []
        self.patients: list[str] = []
        self.weights: list[np.ndarray] = []
        self.members: list[np.ndarray] = []
        self.touching = no_touching(count)
        self.unplaced: dict[str, str] = {}  # slide -> why it has no neighbours
        self.best: dict[tuple[int, str], list[Exemplar]] = {
            (c, kind): [] for c in range(count) for kind in settings.kinds
        }

    def add(self, facts: SlideFacts) -> None:
        """Take in one slide."""
        self.slides.append(facts.slide)
        self.patients.append(facts.patient)
        self.weights.append(facts.weights)
        self.members.append(facts.members)
        if facts.touching is None:
            self.unplaced[facts.slide] = facts.reason
        else:
            self.touching = self.touching.merge(facts.touching)
        fresh: dict[tuple[int, str], list[Exemplar]] = {}
        for one in facts.exemplars:
            fresh.setdefault((one.prototype, one.kind), []).append(one)
        for key, more in fresh.items():
            self.best[key] = CHOOSE[key[1]]([*self.best[key], *more], self.number)


def summed_up(
    pool: Pool, prototypes: Prototypes, settings: AtlasSettings, factors: Sequence[Factor], failures: Mapping[str, str]
) -> Atlas:
    """Atlas of the slides so far, without pictures of patches."""
    weights, members = np.stack(pool.weights), np.stack(pool.members)
    patients, shares = patient_means(weights, pool.patients, members.sum(1))
    groups: list[GroupShare] = []
    tests: list[ShareTest] = []
    notes = [*_notes(pool, len(patients), members)]
    if settings.maps.method in EVEN:
        notes.append(
            f"{settings.maps.method} gives every prototype the same π by construction; "
            "shares are the part of the patches that belong most to it."
        )
    for one in factors:
        groups += group_shares(one, patients, shares, settings.seed)
        found, more = share_tests(one, patients, shares)
        tests += found
        notes += [*_absent(one, patients), *more]
    return Atlas(
        slides=tuple(pool.slides),
        patients=tuple(pool.patients),
        weights=weights,
        members=members,
        shares=tuple(mean_intervals(shares, settings.seed)),
        groups=tuple(groups),
        tests=tuple(tests),
        cooccurrence=co_occurrence(weights, members.sum(1)),
        touching=pool.touching,
        exemplars=tuple(one for best in pool.best.values() for one in best),
        settings=settings,
        prototypes_hash=prototypes.content_hash(),
        notes=tuple(notes),
        failures=failures,
        source=prototypes,
    )


def _with_pictures(atlas: Atlas, images: Mapping[str, Path], work: Work) -> Atlas:
    wanted = list(by_slide(atlas.exemplars, images).items())
    resolution = atlas.settings.maps.resolution
    readings = [
        PatchesToRead(slide, images[slide], resolution(images[slide], next(iter(at.values())).mpp), tuple(at.values()))
        for slide, at in wanted
    ]
    pictures: dict[int, np.ndarray] = {}
    failures = dict(atlas.failures)
    for index, patches in stream(_read_all, readings, "reading exemplars", work, failures):
        pictures.update(zip(wanted[index][1], patches, strict=True))
    without = sorted({one.slide for one in atlas.exemplars} - set(images))
    notes = [*atlas.notes, *_missing_images(without, bool(images))]
    return replace(atlas, pictures=pictures, notes=tuple(notes), failures=failures)


@dataclass(frozen=True)
class PatchesToRead:
    """Patches to read from one slide's image."""

    sample: str  # name of the slide
    image: Path
    mpp: float | None
    places: tuple[Place, ...]


def _read_all(work: PatchesToRead) -> list[np.ndarray]:
    return read_patches(work.image, work.mpp, work.places)


def _notes(pool: Pool, patients: int, members: np.ndarray) -> Iterable[str]:
    slides = len(pool.slides)
    if patients == 1:
        yield "There is one patient only: shares have no intervals."
    if slides < FEW_SLIDES:
        few = "1 slide says" if slides == 1 else f"{slides} slides say"
        yield f"{few} little about which prototypes occur together."
    empty = np.flatnonzero(members.sum(0) == 0)
    if len(empty):
        yield f"No patch belongs most to {', '.join(f'C{c}' for c in empty)}: there is nothing to show of them."
    if pool.unplaced:
        slide, reason = next(iter(pool.unplaced.items()))
        yield f"{len(pool.unplaced)} of {slides} slides are left out of the neighbours, e.g. {slide}: {reason}."


def _absent(factor: Factor, patients: Sequence[str]) -> list[str]:
    missing = sum(patient not in factor.values for patient in patients)
    notes = (
        [f"{factor.column}: {missing} of {len(patients)} patients have no value and are left out."] if missing else []
    )
    if factor.ordered:
        notes.append(f"{factor.column}: its numbers are taken as more or less of something (Spearman), not as names.")
    return notes


def _missing_images(slides: list[str], given: bool) -> list[str]:
    if not slides:
        return []
    if not given:
        return ["No slide images, so there are no pictures of patches; give their folder with `slides=`."]
    return [
        f"{len(slides)} slides with exemplars have no image of their name, e.g. {slides[0]}: those have no pictures."
    ]

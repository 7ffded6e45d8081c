"""Atlas of a cohort's prototypes: example patches, shares of the tissue, differences between groups, neighbours.

The patches are the nearest ones, from as many patients as possible, and members at random; the viewer also shows doubtful ones: members
that lie nearly as close to another prototype, and the farthest ones.
"""

import hashlib
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from panther.aggregators import build
from panther.engine import LOCAL, Work, stream
from panther.errors import InputError
from panther.evaluation.intervals import Interval
from panther.explain.geometry import Grid, grid
from panther.explain.names import colours, label
from panther.explain.scene import MapSettings, SlideJob, assign, is_slide, prototype_distances, read_box, refuse_nothing
from panther.explain.shares import (
    Factor,
    GroupShare,
    ShareTest,
    co_occurrence,
    group_shares,
    mean_intervals,
    patient_means,
    share_tests,
)
from panther.explain.touching import Touching, neighbour_sentences, no_touching, touching
from panther.slides import open_slide
from panther.statistics.even_sample import standard_error
from panther.storage.clinical import TCGA
from panther.storage.trident import tile_names
from panther.types import Bag, Prototypes

Kind = Literal["nearest", "random", "borderline", "farthest"]
KINDS: tuple[Kind, ...] = ("nearest", "random")  # of an atlas on disk
LARGEST = 160  # pixels of a picture's side


@dataclass(frozen=True)
class Place:
    """Square of a patch on its slide."""

    x: float
    y: float
    side: float | None  # None: not in the file, and not inferred
    unit: str = "px"  # of all three: "px" at level 0, or "um"
    mpp: float | None = None  # of the slide's level 0, where the feature file records it


@dataclass(frozen=True)
class Exemplar:
    """One patch of a prototype."""

    prototype: int
    kind: Kind
    slide: str
    patient: str
    row: int  # of the feature file
    distance: float  # Euclidean, to the prototype, after its projection
    rank: float  # smallest first: the distance, a random number, ...
    place: Place | None = None

    @property
    def order(self) -> tuple[float, str, int]:
        """Key of sorting by rank; ties by slide and row."""
        return self.rank, self.slide, self.row


def candidates(labels: np.ndarray, rank: np.ndarray, count: int, number: int) -> list[tuple[int, int]]:
    """Prototype and row of the members (by labels (N,)) with the smallest ranks (N,), at most ``number`` for each of ``count``."""
    rows = []
    for c in range(count):
        members = np.flatnonzero(labels == c)
        if len(members) > number:  # the few smallest first: sorting all of a large slide is slow
            members = members[np.argpartition(rank[members], number - 1)[:number]]
        rows += [(c, row) for row in members[np.lexsort((members, rank[members]))].tolist()]
    return rows


def random_ranks(slide: str, count: int, seed: int) -> np.ndarray:
    """Random numbers (N,) of a slide's patches: those of the smallest, over all slides, are a fair sample of the cohort.

    They depend on the seed and the slide's name alone, so neither the order of slides nor the number of workers matters.
    """
    name = int.from_bytes(hashlib.blake2b(slide.encode(), digest_size=8).digest(), "little")
    return np.random.default_rng([seed, name]).random(count)


def most_varied(exemplars: Iterable[Exemplar], number: int) -> list[Exemplar]:
    """Choose ``number`` exemplars of one prototype: the nearest of each patient, then of their other slides, then second ones.

    Choosing again from these and further slides gives the same as choosing from all at once.
    """
    in_slide: Counter[tuple[str, str]] = Counter()
    in_patient: Counter[tuple[str, int]] = Counter()
    keyed = []
    for exemplar in sorted(exemplars, key=lambda exemplar: exemplar.order):
        turn = in_slide[exemplar.patient, exemplar.slide]  # exemplars of the slide that are nearer
        keyed.append(((turn, in_patient[exemplar.patient, turn], *exemplar.order), exemplar))
        in_slide[exemplar.patient, exemplar.slide] += 1
        in_patient[exemplar.patient, turn] += 1
    return [exemplar for _, exemplar in sorted(keyed, key=lambda pair: pair[0])[:number]]


def choose(kind: str, exemplars: Iterable[Exemplar], number: int) -> list[Exemplar]:
    """Choose exemplars of one kind; random members are those with the smallest random numbers."""
    if kind == "random":
        return sorted(exemplars, key=lambda exemplar: exemplar.order)[:number]
    return most_varied(exemplars, number)


def read_patches(job: SlideJob, exemplars: Mapping[str, Sequence[Exemplar]], settings: MapSettings) -> list[np.ndarray]:
    """Pixels (s, s, 3) of a slide's exemplars, at most `LARGEST` a side: from its image, or from its folder of tiles."""
    from PIL import Image

    from panther.encoders.sources import TileFolder

    assert job.image is not None
    chosen, pictures = exemplars[job.sample], []
    if job.image.is_dir() and not is_slide(job.image):
        names = tile_names(job.ref.files[0])
        for exemplar in chosen:
            if exemplar.row >= len(names):
                raise InputError(
                    f"{job.ref.files[0]}: lists {len(names)} tiles, expected all, as `panther slides` writes"
                )
            tile = Image.fromarray(TileFolder(job.image).read(names[exemplar.row]))
            tile.thumbnail((LARGEST, LARGEST))
            pictures.append(np.asarray(tile))
        return pictures
    places = [exemplar.place for exemplar in chosen if exemplar.place is not None]
    with open_slide(job.image, settings.resolution(job.image, places[0].mpp)) as slide:
        width, height = slide.dimensions
        for place in places:
            if place.side is None:
                raise InputError(f"{slide.path.name}: the feature file has no patch size, which pictures require")
            factor = 1.0 if place.unit == "px" else 1 / slide.mpp
            x, y, side = place.x * factor, place.y * factor, place.side * factor
            if not (0 <= x + side / 2 <= width and 0 <= y + side / 2 <= height):
                raise InputError(
                    f"{slide.path.name}: a patch at ({x:g}, {y:g}) lies outside the image ({width} x {height} pixels), "
                    "expected coordinates at level 0 of the slide that the features were made from"
                )
            size = max(1, min(LARGEST, math.floor(side + 0.5)))
            pictures.append(read_box(slide, (x, y, side, side), (size, size)))
    return pictures


EVEN = frozenset({"ot"})  # methods that give every prototype the share 1/C on every slide
FEW_SLIDES = 10  # below it correlations over slides are mostly chance


@dataclass(frozen=True)
class AtlasSettings:
    """How an atlas is made."""

    maps: MapSettings = field(default_factory=MapSettings)  # assignment, names and the images' resolutions: as in maps
    exemplars: int = 8  # patches per prototype, of every kind
    seed: int = 0
    kinds: tuple[Kind, ...] = KINDS


@dataclass(frozen=True)
class SlideFacts:
    """Description of one slide."""

    slide: str
    patient: str
    weights: np.ndarray  # (C,), pi; of methods in `EVEN` the members' part of the patches
    errors: np.ndarray  # (C,), standard errors of the weights; 0 where all patches are encoded
    members: np.ndarray  # (C,), patches by likeliest prototype
    exemplars: tuple[Exemplar, ...]  # candidates of all kinds
    touching: Touching | None = None  # None: no coordinates, no grid, or a sample of the patches
    reason: str = ""  # of missing neighbours


def describe_slide(job: SlideJob, prototypes: Prototypes, settings: AtlasSettings) -> SlideFacts:
    """Share, members, neighbours and candidates of one slide."""
    bag = prototypes.prepared(job.ref.open())
    module = build(settings.maps.method, prototypes, settings.maps.options)
    assignment, weights = assign(bag, module, settings.maps.device)
    posteriors = assignment.float().numpy()
    labels = posteriors.argmax(1)
    members = np.bincount(labels, minlength=len(prototypes))
    shares = members / len(bag) if settings.maps.method in EVEN else weights.numpy()
    cells, errors, reason = None, np.zeros(len(prototypes)), "the file has no coordinates"
    if bag.population is not None:
        errors = standard_error(posteriors.astype(np.float64), bag.population.total)
        reason = f"{len(bag)} of {bag.population.total} patches are encoded"
    elif bag.places is not None:
        try:
            cells = grid(bag.places(), bag.spec)
        except InputError as error:  # a slide without a grid still has shares
            reason = str(error).rstrip(".")
    exemplars = tuple(_exemplars(job, bag, labels, prototypes, settings, cells))
    beside = None if cells is None else touching(posteriors, cells)
    return SlideFacts(job.sample, job.patient, shares, errors, members, exemplars, beside, "" if beside else reason)


def _exemplars(
    job: SlideJob, bag: Bag, labels: np.ndarray, prototypes: Prototypes, settings: AtlasSettings, cells: Grid | None
) -> Iterator[Exemplar]:
    distances, column = prototype_distances(bag, prototypes), torch.from_numpy(labels)[:, None]
    distance = distances.gather(1, column)[:, 0]

    def margins() -> np.ndarray:
        """Distance (N,) to the next prototype minus that to its prototype; infinite where there is no other."""
        return (distances.scatter(1, column, torch.inf).min(1).values - distance).abs().numpy()

    ranks: dict[str, Callable[[], np.ndarray]] = {
        "nearest": distance.numpy,
        "random": lambda: random_ranks(job.sample, len(bag), settings.seed),
        "borderline": margins,
        "farthest": lambda: -distance.numpy(),
    }
    spec = bag.spec
    side = spec.size_level0 if spec.coords_unit == "px" else spec.mpp and spec.size and spec.mpp * spec.size
    side = float(side) if side else None if cells is None else cells.pitch
    corners = None if bag.places is None else np.asarray(bag.places(), float).reshape(-1, 2)
    for kind in settings.kinds:
        order = ranks[kind]()
        for c, row in candidates(labels, order, len(prototypes), settings.exemplars):
            place = None
            if corners is not None and np.isfinite(corners[row]).all():
                x, y = corners[row].tolist()
                place = Place(x, y, side, spec.coords_unit, spec.mpp_level0)
            if math.isfinite(order[row]):
                yield Exemplar(c, kind, job.sample, job.patient, row, float(distance[row]), float(order[row]), place)


@dataclass(frozen=True)
class Atlas:
    """Shares, tests, neighbours and exemplars; arrays are in the order of slides and prototypes."""

    slides: tuple[str, ...]
    patients: tuple[str, ...]  # of each slide
    weights: np.ndarray  # (n, C), pi
    errors: np.ndarray  # (n, C), standard errors of pi; 0 where all patches are encoded
    members: np.ndarray  # (n, C), patches by likeliest prototype
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
    source: Prototypes | None = None  # written beside the atlas
    files: tuple[Path, ...] = ()  # that were written

    @property
    def prototypes(self) -> int:
        """Their number C."""
        return int(self.weights.shape[1])

    def title(self, prototype: int) -> str:
        """Prototype's number and name."""
        return label(prototype, self.settings.maps.names)

    @cached_property
    def colours(self) -> list[str]:
        """Colour of each prototype, #RRGGBB: from the names file, else the palette's."""
        return colours(self.settings.maps.namings, self.prototypes)

    def neighbours_in_words(self) -> list[str]:
        """Which prototypes touch clearly more or less often than chance, over all slides."""
        return neighbour_sentences(self.touching, [self.title(c) for c in range(self.prototypes)])

    def chosen(self, prototype: int, kind: str) -> list[int]:
        """Indices of a prototype's exemplars of one kind."""
        return [i for i, e in enumerate(self.exemplars) if (e.prototype, e.kind) == (prototype, kind)]

    def share_text(self, prototype: int) -> str:
        """Share in words."""
        share = self.shares[prototype]
        text = f"{100 * share.value:.1f} % of a patient's tissue on average"
        if np.isnan(share.low):
            return text
        return f"{text} (95 % interval {100 * share.low:.1f} to {100 * share.high:.1f} %)"

    def member_text(self, prototype: int) -> str:
        """Members in words."""
        members = self.members[:, prototype]
        return f"{int(members.sum()):,} patches, {int((members > 0).sum())} of {len(members)} slides"

    def to_lines(self) -> list[str]:
        """Shares of the largest prototypes, clear differences between groups, and neighbours."""
        slides, order = len(self.slides), sorted(range(self.prototypes), key=lambda c: -self.shares[c].value)
        lines = [
            f"{self.prototypes} prototypes over {slides} slide{'s' if slides > 1 else ''} ({len(self.files)} files)"
        ]
        lines += [f"  {self.title(c)}: {self.share_text(c)}; {self.member_text(c)}" for c in order[:20]]
        for column in dict.fromkeys(test.column for test in self.tests):
            tests = [test for test in self.tests if test.column == column]
            clear = sorted((test for test in tests if test.p_corrected < 0.05), key=lambda test: test.p_corrected)
            text = ", ".join(f"{self.title(test.prototype)} (p = {test.p_corrected:.2g})" for test in clear)
            lines.append(f"  {column} ({tests[0].test}, Holm): {text or 'no prototype differs clearly'}")
        lines += [f"  {sentence}" for sentence in self.neighbours_in_words()]
        if self.files:
            lines.append("Look at overview.png, then name the prototypes in names.yaml.")
        return lines

    def to_json(self) -> dict[str, Any]:
        """Files that were written."""
        return {"files": [str(file) for file in self.files]}


def atlas_of(
    jobs: Sequence[SlideJob],
    prototypes: Prototypes,
    settings: AtlasSettings | None = None,
    factors: Sequence[Factor] = (),
    *,
    work: Work = LOCAL,
) -> Atlas:
    """Describe the slides one by one, keeping a few candidates per prototype, then summarise over patients and read the exemplars."""
    settings = settings or AtlasSettings()
    settings = replace(settings, maps=replace(settings.maps, device=work.device))
    build(settings.maps.method, prototypes, settings.maps.options)  # refuses a wrong setting before the work
    pool = Pool(len(prototypes), settings)
    failures: dict[str, str] = {}
    describe = partial(describe_slide, prototypes=prototypes, settings=settings)
    for _, slide in stream(describe, jobs, "looking at patches", work, failures):
        pool.add(slide)
    refuse_nothing(pool.slides, failures, "could be read")
    atlas = summed_up(pool, prototypes, settings, factors, failures)
    return _with_pictures(atlas, jobs, work)


class Pool:
    """State while slides stream by: their numbers, and at most as many candidates as will be shown."""

    def __init__(self, count: int, settings: AtlasSettings) -> None:
        self.number = settings.exemplars
        self.slides: list[SlideFacts] = []  # without their candidates
        self.touching = no_touching(count)
        self.best: dict[tuple[int, str], list[Exemplar]] = {
            (c, kind): [] for c in range(count) for kind in settings.kinds
        }

    def add(self, facts: SlideFacts) -> None:
        """Add one slide."""
        self.slides.append(replace(facts, exemplars=(), touching=None))
        if facts.touching is not None:
            self.touching = self.touching.merge(facts.touching)
        for (c, kind), exemplars in groupby(facts.exemplars, key=lambda exemplar: (exemplar.prototype, exemplar.kind)):
            self.best[c, kind] = choose(kind, [*self.best[c, kind], *exemplars], self.number)


def summed_up(
    pool: Pool, prototypes: Prototypes, settings: AtlasSettings, factors: Sequence[Factor], failures: Mapping[str, str]
) -> Atlas:
    """Atlas of the slides so far, without pictures of patches."""
    weights, members = (np.stack([getattr(slide, name) for slide in pool.slides]) for name in ("weights", "members"))
    of_slide = [slide.patient for slide in pool.slides]
    patients, shares = patient_means(weights, of_slide, members.sum(1))
    groups: list[GroupShare] = []
    tests: list[ShareTest] = []
    notes = [*_notes(pool, len(patients), members, settings)]
    for factor in factors:
        groups += group_shares(factor, patients, shares, settings.seed)
        rows, more = share_tests(factor, patients, shares)
        tests += rows
        missing = sum(patient not in factor.values for patient in patients)
        if missing:
            notes.append(f"{factor.column}: {missing} of {len(patients)} patients have no value and are left out.")
        if factor.ordered:
            notes.append(f"{factor.column}: its numbers are treated as ordered (Spearman), not as names.")
        notes += more
    return Atlas(
        slides=tuple(slide.slide for slide in pool.slides),
        patients=tuple(of_slide),
        weights=weights,
        errors=np.stack([slide.errors for slide in pool.slides]),
        members=members,
        shares=tuple(mean_intervals(shares, settings.seed)),
        groups=tuple(groups),
        tests=tuple(tests),
        cooccurrence=co_occurrence(weights, members.sum(1)),
        touching=pool.touching,
        exemplars=tuple(exemplar for best in pool.best.values() for exemplar in best),
        settings=settings,
        prototypes_hash=prototypes.content_hash(),
        notes=tuple(notes),
        failures=failures,
        source=prototypes,
    )


def _with_pictures(atlas: Atlas, jobs: Sequence[SlideJob], work: Work) -> Atlas:
    """The same with the pixels of the exemplars; an image is opened once."""
    images = {job.sample: job.image for job in jobs if job.image is not None}
    wanted: dict[str, list[int]] = {}  # slide -> indices of its exemplars
    for index, exemplar in enumerate(atlas.exemplars):
        image = images.get(exemplar.slide)
        if image is not None and (exemplar.place is not None or image.is_dir()):
            wanted.setdefault(exemplar.slide, []).append(index)
    exemplars = {slide: [atlas.exemplars[index] for index in indices] for slide, indices in wanted.items()}
    read = partial(read_patches, exemplars=exemplars, settings=atlas.settings.maps)
    readings = [job for job in jobs if job.sample in wanted]
    pictures: dict[int, np.ndarray] = {}
    failures = dict(atlas.failures)
    for number, patches in stream(read, readings, "reading exemplars", work, failures):
        pictures.update(zip(wanted[readings[number].sample], patches, strict=True))
    without, notes = sorted({exemplar.slide for exemplar in atlas.exemplars} - set(images)), list(atlas.notes)
    if without and images:
        example = f"e.g. {without[0]}, and no pictures"
        notes.append(f"{len(without)} slides with exemplars have no image of their name, {example}.")
    elif without:
        notes.append("No slide images, so there are no pictures of patches; give their folder with `slides=`.")
    return replace(atlas, pictures=pictures, notes=tuple(notes), failures=failures)


def _notes(pool: Pool, patients: int, members: np.ndarray, settings: AtlasSettings) -> Iterator[str]:
    slides = len(pool.slides)
    if patients == 1:
        yield "There is one patient only: shares have no intervals."
    if slides < FEW_SLIDES:
        few = "1 slide says" if slides == 1 else f"{slides} slides say"
        yield f"{few} little about which prototypes occur together."
    empty = np.flatnonzero(members.sum(0) == 0)
    if len(empty):
        yield f"No patch belongs most to {', '.join(f'C{c}' for c in empty)}: nothing is shown of them."
    if sampled := [slide.errors.max() for slide in pool.slides if slide.errors.any()]:
        yield f"{len(sampled)} of {slides} slides have a sample of patches encoded: standard errors of π are at most {max(sampled):.2g} (pi.csv)."
    if unplaced := [slide for slide in pool.slides if slide.reason]:
        example = f"e.g. {unplaced[0].slide}: {unplaced[0].reason}"
        yield f"{len(unplaced)} of {slides} slides are left out of the neighbours, {example}."
    if settings.maps.method in EVEN:
        yield (
            f"{settings.maps.method} gives every prototype the same π by construction; "
            "shares are the part of the patches that belong most to it."
        )


def patients_of(known: Mapping[str, str] | None, samples: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Patient of each slide: of the table (``known``), else of TCGA's barcode, else the slide itself."""
    if known is not None:
        return {slide: known[slide] for slide in samples}, []
    if all(re.match(TCGA, slide) for slide in samples):
        return {slide: slide[:12] for slide in samples}, []
    note = "Every slide counts as a patient of its own; a `table=` with a column case_id says which belong together."
    return {slide: slide for slide in samples}, [note] if len(samples) > 1 else []

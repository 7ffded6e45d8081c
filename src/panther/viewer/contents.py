"""What there is to show: slides, features, prototypes, models and results below a folder, found by what the files hold."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from panther.errors import InputError
from panther.explain.jobs import is_slide
from panther.slides import list_slides
from panther.storage.bags import BAG_SUFFIXES, files_below, list_bags
from panther.storage.clinical import ClinicalTable, read_clinical
from panther.storage.survey import survey
from panther.study.record import RECORD, STUDY
from panther.types import Openable

ARTEFACTS = {
    "atlas.json": "atlas",
    "attribution.json": "attribution",
    "concordance.json": "concordance",
    "km.json": "km",
}
NAMES = ("names.yaml", "names.yml", "names.csv", "names.tsv")
CONTOURS = "contours_geojson"
OVERLAY = ".overlay.tif"  # a picture of `panther map`, no slide


@dataclass(frozen=True)
class SlideEntry:
    """One slide, known to the browser by its name alone."""

    name: str
    features: Openable | None = None
    image: Path | None = None
    contours: Path | None = None
    patient: str | None = None


@dataclass(frozen=True)
class Contents:
    """Everything that may be opened; nothing else can be."""

    title: str
    slides: Mapping[str, SlideEntry]
    names: Path  # where names of prototypes are kept; it may not exist yet
    prototypes: Mapping[str, Path] = field(default_factory=dict)  # sets by name, the usual one first
    models: Mapping[str, Path] = field(default_factory=dict)
    classifiers: Mapping[str, Path] = field(default_factory=dict)  # of tissue classes
    studies: Mapping[str, Path] = field(default_factory=dict)
    artefacts: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)  # kind -> folders of other commands
    embeddings: Path | None = None
    table: ClinicalTable | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Given:
    """What the user names beside the folder; it goes before what is found there."""

    features: Path | None = None
    slides: Path | None = None
    prototypes: tuple[Path, ...] = ()
    models: tuple[Path, ...] = ()
    embeddings: Path | None = None
    study: Path | None = None
    table: Path | None = None
    names: Path | None = None


NOTHING_MORE = Given()


def find_contents(place: Path, given: Given = NOTHING_MORE) -> Contents:
    """Look below ``place`` for everything that the viewer can show."""
    if not place.exists():
        raise InputError(
            f"{place}: there is no such file or folder; give the folder of a job, of features or of slides."
        )
    found = _sorted_out(place)
    prototypes = _by_name(given.prototypes or found.prototypes, place)
    models = _by_name(given.models or found.models, place)
    features, notes = _features(place, given, found)
    images = _images(place, given)
    slides = _slides(features, images, found.contours)
    if not slides:
        raise InputError(
            f"{place}: neither slides nor features were found there; give the folder that `panther slides` wrote, or --features."
        )
    table, about_table = _table(given.table, found.tables, slides)
    patients = {} if table is None else dict(zip(table.who.slide, table.who.patient, strict=True))
    return Contents(
        title=place.resolve().name,
        slides={
            name: SlideEntry(name, one.features, one.image, one.contours, patients.get(name))
            for name, one in slides.items()
        },
        names=given.names or next(iter(found.names), _beside(place)),
        prototypes=prototypes,
        models=models,
        classifiers=_by_name(found.classifiers, place),
        studies=_by_name([given.study] if given.study else found.studies, place),
        artefacts={kind: tuple(folders) for kind, folders in found.artefacts.items()},
        embeddings=given.embeddings or next(iter(found.embeddings), None),
        table=table,
        notes=(*notes, *about_table),
    )


@dataclass
class _Found:
    """Files below the folder, by kind; those that lie higher come first."""

    prototypes: list[Path] = field(default_factory=list)
    models: list[Path] = field(default_factory=list)
    classifiers: list[Path] = field(default_factory=list)
    studies: list[Path] = field(default_factory=list)
    embeddings: list[Path] = field(default_factory=list)
    tables: list[Path] = field(default_factory=list)
    names: list[Path] = field(default_factory=list)
    contours: dict[str, Path] = field(default_factory=dict)
    features: dict[Path, list[Path]] = field(default_factory=lambda: defaultdict(list))  # folder -> its files
    artefacts: dict[str, list[Path]] = field(default_factory=lambda: defaultdict(list))


def _sorted_out(place: Path) -> _Found:
    found = _Found()
    if place.is_file():
        return found
    files = sorted(files_below(place, skip_locked=True), key=lambda file: (len(file.parts), file))
    closed = {file.parent for file in files if file.name == RECORD and (file.parent / STUDY).exists()}
    found.studies = sorted(closed)
    for file in files:
        if file.name in ARTEFACTS:
            closed.add(file.parent)
            found.artefacts[ARTEFACTS[file.name]].append(file.parent)
    for file in files:
        if not closed.intersection(file.parents):
            _put(file, found)
    return found


def _put(file: Path, found: _Found) -> None:
    suffix = file.suffix.lower()
    if file.name in NAMES:
        found.names.append(file)
    elif file.parent.name == CONTOURS and suffix == ".geojson":
        found.contours.setdefault(file.stem, file)
    elif suffix == ".safetensors" and (kind := _kind(file)):
        getattr(found, kind).append(file)
    elif suffix == ".h5ad":
        found.embeddings.append(file)
    elif suffix in (".csv", ".tsv", ".xlsx", ".parquet"):
        found.tables.append(file)
    elif suffix in BAG_SUFFIXES:
        found.features[file.parent].append(file)


def _kind(file: Path) -> str | None:
    """Kind of a .safetensors file: prototypes, models, classifiers, or None for features."""
    from panther.explain.concordance.tissue_classifier import is_classifier
    from panther.models.model_file import read_about

    about = survey(file)
    if about["kind"] == "prototypes":
        return "prototypes"
    if is_classifier(file):
        return "classifiers"
    try:
        read_about(file)
    except InputError:
        return None
    return "models"


def _features(place: Path, given: Given, found: _Found) -> tuple[dict[str, Openable], list[str]]:
    """Features by slide, of one folder: a job may hold those of several encoders, of which one is shown."""
    if given.features is not None:
        return {ref.sample: ref for ref in list_bags(given.features).refs}, []
    if place.is_file():
        named = () if is_slide(place) else list_bags(place).refs
        return {ref.sample: ref for ref in named}, []
    folders = {folder: kind for folder, files in found.features.items() if (kind := _feature_kind(files))}
    if not folders:
        return {}, []
    counts = Counter(folders.values())
    wanted = _wanted(given, found)
    # those that the prototypes were made of, else those that most slides have
    kind = max(
        counts,
        key=lambda kind: (
            kind == wanted,
            counts[kind],
            sum(len(found.features[f]) for f in folders if folders[f] == kind),
        ),
    )
    chosen = [folder for folder, one in folders.items() if one == kind]
    refs = {ref.sample: ref for folder in sorted(chosen) for ref in list_bags(folder).refs}
    others = sorted({str(folder) for folder, one in folders.items() if one != kind})
    note = f"Features of {chosen[0]} are shown; there are others in {', '.join(others)}: choose with --features."
    return refs, [note] if others else []


def _wanted(given: Given, found: _Found) -> tuple[str | None, int] | None:
    from panther.storage.prototypes import load_prototypes

    for file in (*given.prototypes, *found.prototypes):
        prototypes = load_prototypes(file)
        return prototypes.encoder, prototypes.dim_in
    return None


def _feature_kind(files: Iterable[Path]) -> tuple[str | None, int] | None:
    """Encoder and width of the first file that holds features; None where none of the first does."""
    for file in list(files)[:3]:
        about = survey(file)
        if about["kind"] == "bag":
            return about["encoder"], about["dim"]
    return None


def _images(place: Path, given: Given) -> dict[str, Path]:
    if given.slides is None and place.is_file():
        return {ref.name: ref.path for ref in list_slides([place]).refs} if is_slide(place) else {}
    try:
        found = list_slides([given.slides or place])
    except InputError:
        if given.slides is not None:
            raise
        return {}
    return {ref.name: ref.path for ref in found.refs if not ref.path.name.lower().endswith(OVERLAY)}


def _slides(
    features: Mapping[str, Openable], images: Mapping[str, Path], contours: Mapping[str, Path]
) -> dict[str, SlideEntry]:
    outline = {
        name: contours.get(images[name].name, contours.get(name)) if name in images else contours.get(name)
        for name in (*features, *images)
    }
    return {
        name: SlideEntry(name, features.get(name), images.get(name), outline[name])
        for name in sorted({*features, *images})
    }


def _table(
    given: Path | None, tables: Iterable[Path], slides: Mapping[str, SlideEntry]
) -> tuple[ClinicalTable | None, list[str]]:
    """The table given, or the first one found that tells of these slides."""
    if given is not None:
        table = read_clinical(given)
        known = sum(name in slides for name in table.who.slide)
        note = f"{given}: {known} of the {len(slides)} slides are in the table."
        return table, [note] if known < len(slides) else []
    for path in tables:
        try:
            table = read_clinical(path)
        except InputError:
            continue
        if set(table.who.slide) & set(slides):
            return table, []
    return None, []


def _by_name(paths: Iterable[Path], place: Path) -> dict[str, Path]:
    """Short names: the file's, or its path below the folder where two are called the same."""
    paths = list(paths)
    twice = {name for name, count in Counter(path.stem for path in paths).items() if count > 1}
    named = {}
    for path in paths:
        below = path.is_relative_to(place)
        long = path.relative_to(place).with_suffix("").as_posix() if below else path.with_suffix("").as_posix()
        named[long if path.stem in twice else path.stem] = path
    return named


def _beside(place: Path) -> Path:
    return (place.parent if place.is_file() else place) / NAMES[0]

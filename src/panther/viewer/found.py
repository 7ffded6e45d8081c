"""Files below a folder by what they hold, without opening every one of them."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from os.path import realpath  # Path.resolve() raises for a link onto itself
from pathlib import Path

from panther.errors import InputError
from panther.explain.concordance.tissue_classifier import is_classifier
from panther.models.model_file import read_about
from panther.storage.bags import BAG_SUFFIXES, files_below
from panther.storage.names import composed
from panther.storage.survey import survey
from panther.study.record import RECORD, STUDY

ARTEFACTS = {
    "atlas.json": "atlas",
    "attribution.json": "attribution",
    "concordance.json": "concordance",
    "km.json": "km",
}
NAMES = ("names.yaml", "names.yml", "names.csv", "names.tsv")
TABLES = (".csv", ".tsv", ".parquet")
CONTOURS = "contours_geojson"
MANY = 64  # .safetensors in one folder: they are a cohort's features, and are not all looked into


@dataclass(frozen=True)
class Roots:
    """Folders and files that the user opened, as the system knows them; nothing else is read."""

    places: tuple[Path, ...]
    as_given: tuple[Path, ...] = ()  # the same as the user wrote them: messages name files so

    def hold(self, path: Path) -> bool:
        """Whether a path, with all its links followed, ends inside."""
        real = Path(realpath(path))
        return any(real == place or place in real.parents for place in self.places)


@dataclass
class Found:
    """Files by kind; those that lie higher come first."""

    prototypes: list[Path] = field(default_factory=list)
    models: list[Path] = field(default_factory=list)
    classifiers: list[Path] = field(default_factory=list)
    studies: list[Path] = field(default_factory=list)
    embeddings: list[Path] = field(default_factory=list)
    tables: list[Path] = field(default_factory=list)
    names: list[Path] = field(default_factory=list)
    contours: dict[str, Path] = field(default_factory=dict)
    features: dict[Path, list[Path]] = field(default_factory=lambda: defaultdict(list))  # folder -> its files
    artefacts: dict[str, list[Path]] = field(default_factory=lambda: defaultdict(list))  # kind -> folders
    outside: list[Path] = field(default_factory=list)  # links that lead out of what was opened
    locked: list[Path] = field(default_factory=list)  # folders that cannot be listed


def sort_out(place: Path, roots: Roots, leave_out: Iterable[Path] = ()) -> Found:
    """What lies below ``place``; files that the user named otherwise are left out."""
    found = Found()
    if place.is_file():
        return found
    files = sorted(files_below(place, locked=found.locked), key=lambda file: (len(file.parts), str(file)))
    found.outside = [file for file in files if file.is_symlink() and not roots.hold(file)]
    named = {realpath(path) for path in leave_out}
    unusable = {*found.outside, *(file for file in files if realpath(file) in named)} if named else {*found.outside}
    closed = _results(place, files, found)
    usable = {folder: closed.isdisjoint((folder, *folder.parents)) for folder in {file.parent for file in files}}
    for file in files:
        if usable[file.parent] and file not in unusable:
            _put(file, found)
    return found


def _results(place: Path, files: list[Path], found: Found) -> set[Path]:
    """Folders of other commands: they are opened as a whole, or, where a link leads out of one, not at all."""
    open_ended = {parent for file in found.outside for parent in file.parents}
    runs = [file.parent for file in files if file.name == RECORD and (file.parent / STUDY).exists()]
    found.studies = [folder for folder in runs if folder not in open_ended]
    closed = {folder for folder in runs if folder != place}
    closed |= {place / name for name in ("cache", "models") if place in runs}
    for file in files:
        if file.name in ARTEFACTS:
            if file.parent not in open_ended:
                found.artefacts[ARTEFACTS[file.name]].append(file.parent)
            closed |= {file.parent} - {place}
    return closed


def _put(file: Path, found: Found) -> None:
    suffix = file.suffix.lower()
    if file.name in NAMES:
        found.names.append(file)
    elif file.parent.name == CONTOURS and suffix == ".geojson":
        found.contours.setdefault(composed(file.stem), file)
    elif suffix == ".safetensors":
        _put_tensors(file, found)
    elif suffix == ".pkl" and survey(file)["kind"] == "prototypes":  # of the published code; never executed
        found.prototypes.append(file)
    elif suffix == ".h5ad":
        found.embeddings.append(file)
    elif suffix in TABLES:
        found.tables.append(file)
    elif suffix in BAG_SUFFIXES:
        found.features[file.parent].append(file)


def _put_tensors(file: Path, found: Found) -> None:
    """Prototypes, a model, a classifier or features; a folder that has shown many features holds nothing else."""
    beside = found.features.get(file.parent, [])
    kind = None if len(beside) > MANY else _kind(file)
    if kind is None:
        found.features[file.parent].append(file)
    else:
        getattr(found, kind).append(file)


def _kind(file: Path) -> str | None:
    """Kind of a .safetensors file: models, classifiers, prototypes, or None for features."""
    try:
        read_about(file)
        return "models"
    except InputError:
        if is_classifier(file):
            return "classifiers"
    return "prototypes" if survey(file)["kind"] == "prototypes" else None

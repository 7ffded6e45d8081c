"""Slides, features, prototypes, models and results below a folder, recognised by what the files hold."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from os.path import realpath  # Path.resolve() raises for a link onto itself
from pathlib import Path
from typing import NamedTuple

from panther.engine import Work, collect
from panther.errors import InputError
from panther.explain.concordance.tissue_classifier import is_classifier
from panther.explain.scene import is_slide
from panther.models.model import read_about
from panther.patches import same_encoder
from panther.storage.bags import BAG_SUFFIXES, BagRef, files_below, list_bags
from panther.storage.names import as_text, composed, not_text
from panther.storage.survey import survey
from panther.study.results import RECORD, STUDY
from panther.types import Openable, Prototypes

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
LOOKED_INTO = 5  # files of a folder, spread over it; the others are taken to be like them


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
class Discovered:
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


def sort_out(place: Path, roots: Roots, leave_out: Iterable[Path] = ()) -> Discovered:
    """What lies below ``place``; files that the user named otherwise are left out."""
    found = Discovered()
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


def _results(place: Path, files: list[Path], discovered: Discovered) -> set[Path]:
    """Folders of other commands: they are opened as a whole, or, where a link leads out of one, not at all."""
    open_ended = {parent for file in discovered.outside for parent in file.parents}
    runs = [file.parent for file in files if file.name == RECORD and (file.parent / STUDY).exists()]
    discovered.studies = [folder for folder in runs if folder not in open_ended]
    closed = {folder for folder in runs if folder != place}
    closed |= {place / name for name in ("cache", "models") if place in runs}
    for file in files:
        if file.name in ARTEFACTS:
            if file.parent not in open_ended:
                discovered.artefacts[ARTEFACTS[file.name]].append(file.parent)
            closed |= {file.parent} - {place}
    return closed


def _put(file: Path, discovered: Discovered) -> None:
    suffix = file.suffix.lower()
    if file.name in NAMES:
        discovered.names.append(file)
    elif file.parent.name == CONTOURS and suffix == ".geojson":
        discovered.contours.setdefault(composed(file.stem), file)
    elif suffix == ".safetensors":
        _put_tensors(file, discovered)
    elif suffix == ".pkl" and survey(file)["kind"] == "prototypes":  # of the published code; never executed
        discovered.prototypes.append(file)
    elif suffix == ".h5ad":
        discovered.embeddings.append(file)
    elif suffix in TABLES:
        discovered.tables.append(file)
    elif suffix in BAG_SUFFIXES:
        discovered.features[file.parent].append(file)


def _put_tensors(file: Path, discovered: Discovered) -> None:
    """Prototypes, a model, a classifier or features; a folder that has shown many features holds nothing else."""
    beside = discovered.features.get(file.parent, [])
    kind = None if len(beside) > MANY else _tensor_kind(file)
    if kind is None:
        discovered.features[file.parent].append(file)
    else:
        getattr(discovered, kind).append(file)


def _tensor_kind(file: Path) -> str | None:
    """Kind of a .safetensors file: models, classifiers, prototypes, or None for features."""
    try:
        read_about(file)
        return "models"
    except InputError:
        if is_classifier(file):
            return "classifiers"
    return "prototypes" if survey(file)["kind"] == "prototypes" else None


class _Kind(NamedTuple):
    """What features are made of; one kind is shown."""

    encoder: str | None = None
    dim: int = 0  # 0: none of the files can be read
    mpp: float | None = None

    def suits(self, prototypes: Prototypes | None) -> bool:
        if prototypes is None or self.dim != prototypes.dim_in or not same_encoder(self.encoder, prototypes.encoder):
            return False
        return self.mpp is None or prototypes.spec.mpp is None or abs(self.mpp / prototypes.spec.mpp - 1) < 0.1

    def __str__(self) -> str:
        return f"{self.encoder or f'{self.dim} dimensions'}{f' at {self.mpp:g} um/px' if self.mpp else ''}"


def find_features(
    place: Path,
    given: Path | None,
    folders: Mapping[Path, Sequence[Path]],
    prototypes: Prototypes | None,
    work: Work,
    notes: list[str],
) -> dict[str, Openable]:
    """Features by slide: those given, else of the kind that the prototypes were made of, else that most slides have."""
    if given is not None or place.is_file():
        if given is None and is_slide(place):
            return {}
        listing = list_bags(given or place)
        notes += list(listing.problems.values())[:3]
        return {ref.sample: ref for ref in listing.refs}
    by_kind: dict[_Kind, dict[Path, bool]] = defaultdict(dict)  # kind -> its folders, and whether they have coordinates
    for folder, (kind, placed) in _looked_into(folders, work).items():
        by_kind[kind][folder] = placed
    if not by_kind:
        return {}
    bags = {kind: _bags(folders, found, notes) for kind, found in by_kind.items()}
    chosen = max(bags, key=lambda kind: (kind.dim > 0, kind.suits(prototypes), len(bags[kind])))
    others = [kind for kind in bags if kind != chosen and kind.dim]
    if others:
        notes.append(
            f"Features of {chosen} are shown; there are others of {', '.join(map(str, others))}: `panther view FOLDER --features OTHER` shows them."
        )
    return bags[chosen]


def _looked_into(folders: Mapping[Path, Sequence[Path]], work: Work) -> dict[Path, tuple[_Kind, bool]]:
    """Kind of each folder that holds features, by a few of its files."""
    samples = {folder: _spread(files) for folder, files in folders.items()}
    files = [file for some in samples.values() for file in some]
    about, _failures = collect(survey, files, "looking", work)
    found = {}
    for folder, some in samples.items():
        seen = [about.get(str(file), {"kind": "problem"}) for file in some]
        bags = [one for one in seen if one["kind"] == "bag"]
        if bags:
            first = bags[0]
            kind = _Kind(first["encoder"], first["dim"], (first["patch_spec"] or {}).get("mpp"))
            found[folder] = kind, bool(first["coords"])
        elif all(one["kind"] == "problem" for one in seen):
            found[folder] = _Kind(), False  # damaged: the page says so, slide by slide
    return found


def _spread(files: Sequence[Path]) -> list[Path]:
    step = max(1, (len(files) - 1) // (LOOKED_INTO - 1)) if len(files) > LOOKED_INTO else 1
    return list(files)[::step][:LOOKED_INTO]


def _bags(folders: Mapping[Path, Sequence[Path]], of: Mapping[Path, bool], notes: list[str]) -> dict[str, Openable]:
    """One file a slide; CLAM keeps each twice, once without coordinates."""
    bags: dict[str, Openable] = {}
    for folder in sorted(of, key=lambda folder: (not of[folder], -len(folders[folder]), folder)):
        for file in folders[folder]:
            name = as_text(file.stem)
            if name is None:
                notes.append(not_text(file))
            else:
                bags.setdefault(name, BagRef(name, (file,)))
    return bags

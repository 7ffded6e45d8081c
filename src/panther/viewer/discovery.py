"""Slides, features, prototypes, models and results below a folder, recognised by the content of their files."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from os.path import realpath  # Path.resolve() raises for a link onto itself
from pathlib import Path
from typing import NamedTuple

from panther.engine import Work, collect
from panther.explain.scene import is_slide
from panther.patches import same_encoder
from panther.storage.bags import BAG_SUFFIXES, BagRef, files_below, list_bags
from panther.storage.names import as_text, composed, not_text
from panther.storage.survey import survey
from panther.study.results import RECORD, STUDY
from panther.types import Openable, Prototypes

ARTEFACTS = {
    name: name.removesuffix(".json") for name in ("atlas.json", "attribution.json", "concordance.json", "km.json")
}
NAMES = ("names.yaml", "names.yml", "names.csv", "names.tsv")
ENDINGS = {".h5ad": "embeddings", ".csv": "table", ".tsv": "table", ".parquet": "table"}
KINDS = ("prototypes", "model", "tissue classifier")  # of files that must be opened to know
CONTOURS = "contours_geojson"
MANY = 64  # .safetensors in one folder: they are a cohort's features, and the others are not opened
SAMPLED = 5  # files of a folder, spread over it; the others are taken to be like them


@dataclass(frozen=True)
class Roots:
    """Opened folders and files, as the system knows them; nothing else is read."""

    places: tuple[Path, ...]
    as_given: tuple[Path, ...] = ()  # as the user wrote them: messages name files so

    def hold(self, path: Path) -> bool:
        """Whether a path, with all its links followed, ends inside."""
        real = Path(realpath(path))
        return any(real == place or place in real.parents for place in self.places)


@dataclass
class Discovered:
    """Files and folders by kind; those that lie higher come first."""

    files: dict[str, list[Path]] = field(default_factory=lambda: defaultdict(list))  # of KINDS and ENDINGS, and names
    studies: list[Path] = field(default_factory=list)
    contours: dict[str, Path] = field(default_factory=dict)
    features: dict[Path, list[Path]] = field(default_factory=lambda: defaultdict(list))  # folder -> its files
    artefacts: dict[str, list[Path]] = field(default_factory=lambda: defaultdict(list))  # kind -> folders
    outside: list[Path] = field(default_factory=list)  # links that lead out of the opened folders
    locked: list[Path] = field(default_factory=list)  # folders that cannot be listed


def sort_out(place: Path, roots: Roots, leave_out: Iterable[Path] = ()) -> Discovered:
    """Files below ``place`` by kind; those that the user named explicitly are left out."""
    result = Discovered()
    if place.is_file():
        return result
    files = sorted(files_below(place, locked=result.locked), key=lambda file: (len(file.parts), str(file)))
    result.outside = [file for file in files if file.is_symlink() and not roots.hold(file)]
    named = {realpath(path) for path in leave_out}
    unusable = {*result.outside, *(file for file in files if named and realpath(file) in named)}
    closed = _results(place, files, result)
    usable = {folder: closed.isdisjoint((folder, *folder.parents)) for folder in {file.parent for file in files}}
    for file in files:
        if usable[file.parent] and file not in unusable:
            _put(file, result)
    return result


def _results(place: Path, files: list[Path], result: Discovered) -> set[Path]:
    """Folders of other commands: they are opened as a whole or, if a link leads out of one, not at all."""
    open_ended = {parent for file in result.outside for parent in file.parents}
    runs = [file.parent for file in files if file.name == RECORD and (file.parent / STUDY).exists()]
    result.studies = [folder for folder in runs if folder not in open_ended]
    closed = {folder for folder in runs if folder != place}
    closed |= {place / name for name in ("cache", "models") if place in runs}
    for file in files:
        if file.name in ARTEFACTS:
            if file.parent not in open_ended:
                result.artefacts[ARTEFACTS[file.name]].append(file.parent)
            closed |= {file.parent} - {place}
    return closed


def _put(file: Path, result: Discovered) -> None:
    suffix = file.suffix.lower()
    if file.name in NAMES:
        result.files["names"].append(file)
    elif file.parent.name == CONTOURS and suffix == ".geojson":
        result.contours.setdefault(composed(file.stem), file)
    elif suffix in ENDINGS:
        result.files[ENDINGS[suffix]].append(file)
    elif suffix in (".safetensors", ".pkl"):  # pickles of the published code are never executed
        is_like_others = len(result.features.get(file.parent, ())) > MANY
        kind = "bag" if is_like_others else survey(file)["kind"]
        if kind in KINDS:
            result.files[kind].append(file)
        elif suffix in BAG_SUFFIXES:
            result.features[file.parent].append(file)
    elif suffix in BAG_SUFFIXES:
        result.features[file.parent].append(file)


class _Kind(NamedTuple):
    """Encoder and resolution of features; one kind is shown."""

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
    explicit: Path | None,
    folders: Mapping[Path, Sequence[Path]],
    prototypes: Prototypes | None,
    work: Work,
    notes: list[str],
) -> dict[str, Openable]:
    """Features by slide: the explicit ones, else of the kind that the prototypes were fitted on, else that of most slides."""
    if explicit is not None or place.is_file():
        if explicit is None and is_slide(place):
            return {}
        listing = list_bags(explicit or place)
        notes += list(listing.problems.values())[:3]
        return {ref.sample: ref for ref in listing.refs}
    by_kind: dict[_Kind, dict[Path, bool]] = defaultdict(dict)  # kind -> its folders, and whether they have coordinates
    for folder, (kind, has_coords) in _sampled(folders, work).items():
        by_kind[kind][folder] = has_coords
    if not by_kind:
        return {}
    bags = {kind: _bags(folders, members, notes) for kind, members in by_kind.items()}
    chosen = max(bags, key=lambda kind: (kind.dim > 0, kind.suits(prototypes), len(bags[kind])))
    others = ", ".join(str(kind) for kind in bags if kind != chosen and kind.dim)
    if others:
        notes.append(f"Features of {chosen} are shown, not those of {others}; `panther view FOLDER --features OTHER`.")
    return bags[chosen]


def _sampled(folders: Mapping[Path, Sequence[Path]], work: Work) -> dict[Path, tuple[_Kind, bool]]:
    """Kind of each folder that holds features, by a few of its files."""
    samples = {
        folder: files[:: max(1, (len(files) - 1) // (SAMPLED - 1))][:SAMPLED] for folder, files in folders.items()
    }
    about, _failures = collect(survey, [file for files in samples.values() for file in files], "looking", work)
    kinds = {}
    for folder, files in samples.items():
        looks = [about.get(str(file), {"kind": "problem"}) for file in files]
        first = next((one for one in looks if one["kind"] == "bag"), None)
        if first is not None:
            kind = _Kind(first["encoder"], first["dim"], (first["patch_spec"] or {}).get("mpp"))
            kinds[folder] = kind, bool(first["coords"])
        elif all(one["kind"] == "problem" for one in looks):
            kinds[folder] = _Kind(), False  # damaged: the page shows the reason of each slide
    return kinds


def _bags(
    folders: Mapping[Path, Sequence[Path]], members: Mapping[Path, bool], notes: list[str]
) -> dict[str, Openable]:
    """One file a slide; CLAM keeps each twice, once without coordinates."""
    bags: dict[str, Openable] = {}
    for folder in sorted(members, key=lambda folder: (not members[folder], -len(folders[folder]), folder)):
        for file in folders[folder]:
            name = as_text(file.stem)
            if name is None:
                notes.append(not_text(file))
            else:
                bags.setdefault(name, BagRef(name, (file,)))
    return bags

"""Everything that the viewer can show below a folder: slides, features, prototypes, models and results, recognised by content."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from os.path import realpath  # Path.resolve() raises for a link onto itself
from pathlib import Path
from typing import NamedTuple

from panther.engine import LOCAL, Work, collect, map_all
from panther.errors import InputError
from panther.explain.scene import is_slide
from panther.models.model import load_model, read_about
from panther.patches import same_encoder
from panther.slides import list_slides
from panther.slides.polygons import ANNOTATIONS
from panther.slides.readers.zarr import is_image
from panther.storage.bags import BAG_SUFFIXES, BagRef, files_below, list_bags
from panther.storage.clinical import USUAL, ClinicalTable, Columns, read_clinical
from panther.storage.names import as_text, composed, not_text, slide_of
from panther.storage.prototypes import load_prototypes
from panther.storage.readers import is_store
from panther.storage.survey import survey
from panther.store import is_stored_embeddings
from panther.study.results import COHORT, RECORD, STUDY, read_record
from panther.types import Openable, Prototypes

ARTEFACTS = ("atlas.json", "attribution.json", "concordance.json", "km.json")
NAMES = ("names.yaml", "names.yml")
ENDINGS = {".h5ad": "embeddings", ".csv": "table", ".tsv": "table", ".parquet": "table"}
KINDS = ("prototypes", "model", "tissue classifier")  # of files that must be opened to know
CONTOURS = "contours_geojson"
MANY = 64  # .safetensors in one folder after which the others are taken for features
SAMPLED = 5  # files of a folder that are opened; the others are assumed to be of the same kind
LARGEST_TABLE = 64 << 20  # bytes; a larger one is no clinical table, unless it is explicit
TABLES_TRIED = 32
MODELS_READ = 16  # models whose prototypes become sets


@dataclass(frozen=True)
class Roots:
    """Opened folders and files with links resolved; nothing else is read."""

    places: tuple[Path, ...]
    as_given: tuple[Path, ...] = ()  # as the user wrote them, and so as in messages

    def hold(self, path: Path) -> bool:
        """Whether a path, with all its links followed, ends inside."""
        real = Path(realpath(path))
        return any(real == place or place in real.parents for place in self.places)


@dataclass
class Files:
    """Files and folders below a folder; those that lie higher come first."""

    by_kind: dict[str, list[Path]] = field(default_factory=lambda: defaultdict(list))  # of KINDS and ENDINGS, and names
    studies: list[Path] = field(default_factory=list)
    contours: dict[str, Path] = field(default_factory=dict)
    features: dict[Path, list[Path]] = field(default_factory=lambda: defaultdict(list))  # folder -> its files
    artefacts: dict[str, list[Path]] = field(default_factory=lambda: defaultdict(list))  # kind -> folders
    outside: list[Path] = field(default_factory=list)  # links that lead out of the opened folders
    locked: list[Path] = field(default_factory=list)  # folders that cannot be listed


@dataclass(frozen=True)
class SlideEntry:
    """One slide, known to the browser by its name alone."""

    name: str
    features: Openable | None = None
    image: Path | None = None
    contours: Path | None = None
    patient: str | None = None

    @property
    def sample(self) -> str:
        """Name, as messages call it."""
        return self.name

    @property
    def files(self) -> tuple[Path, ...]:
        """Files that are read: features, image (of a DICOM slide its folder), contours."""
        features = () if self.features is None else self.features.files
        return (*features, *(path for path in (self.image, self.contours) if path is not None))


@dataclass(frozen=True)
class Contents:
    """Everything that may be opened; nothing else can be."""

    title: str
    slides: Mapping[str, SlideEntry]
    names: Path  # names of prototypes; it may not exist yet
    prototypes: Mapping[str, Path] = field(default_factory=dict)  # sets by name, the default first
    models: Mapping[str, Path] = field(default_factory=dict)
    classifiers: Mapping[str, Path] = field(default_factory=dict)  # of tissue classes
    studies: Mapping[str, Path] = field(default_factory=dict)
    artefacts: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)  # kind -> folders of other commands
    embeddings: Path | None = None
    table: ClinicalTable | None = None
    notes: tuple[str, ...] = ()
    annotations: Path = Path(ANNOTATIONS)  # folder of annotations of slides that are of no job
    roots: Roots | None = None  # what was opened; None: not checked


@dataclass(frozen=True)
class Inputs:
    """Explicit paths beside the folder; they take precedence over its contents."""

    features: Path | None = None
    slides: Path | None = None
    prototypes: tuple[Path, ...] = ()
    models: tuple[Path, ...] = ()
    embeddings: Path | None = None
    study: Path | None = None
    table: Path | None = None
    names: Path | None = None
    columns: Columns = USUAL
    allow_folders: tuple[Path, ...] = ()  # links into them are followed

    @property
    def paths(self) -> list[Path]:
        """All of them."""
        single = (self.features, self.slides, self.embeddings, self.study, self.table, self.names)
        return [path for path in (*single, *self.prototypes, *self.models, *self.allow_folders) if path is not None]


NO_INPUTS = Inputs()


def find_contents(place: Path, inputs: Inputs = NO_INPUTS, work: Work = LOCAL) -> Contents:
    """Search ``place`` for everything that the viewer can show; files that could crash their library are opened by ``work``."""
    _check(place, inputs, work)
    opened = (place, *inputs.paths)
    roots = Roots(tuple(dict.fromkeys(path.resolve() for path in opened)), opened)
    files = scan(place, roots, {realpath(path) for path in inputs.paths if path.is_file()})
    models = _by_name(inputs.models or files.by_kind["model"])
    sets = _by_name(inputs.prototypes or files.by_kind["prototypes"])
    loaded = [load_set(path) for path in sets.values()]
    notes = _unread(files.outside, files.locked)
    features = _find_features(place, inputs.features, files, next(iter(loaded), None), roots, work, notes)
    images = _find_images(place, inputs.slides, roots, notes)
    if not features and not images:
        unread = " ".join(_unread(files.outside, files.locked))
        expected = (
            "the folder of the features, and this one with `study=`"
            if files.studies
            else "a folder of `panther slides`"
        )
        raise InputError(f"{place}: neither slides nor features, expected {expected}. {unread}".strip())
    folder = place.parent if place.is_file() else place
    names_file = inputs.names or next(iter(files.by_kind["names"]), folder / NAMES[0])
    if inputs.names is None and names_file.is_symlink() and not roots.hold(names_file):  # it is written
        raise InputError(f"{names_file}: a link out of the folder, expected a file; `--names FILE` allows it")
    studies = _by_name([inputs.study] if inputs.study else files.studies)
    names = sorted({*features, *images})
    table = _find_table(inputs, files.by_kind["table"], studies, names, notes)
    patients = {} if table is None else dict(zip(table.who.slide, table.who.patient, strict=True))
    slides = {}
    for name in names:
        image = images.get(name, images.get(slide_of(name)))
        # QuPath names its export after the whole file name; as in `panther slides` that one goes first
        contours = files.contours.get(composed(image.name) if image else name, files.contours.get(slide_of(name)))
        slides[name] = SlideEntry(name, features.get(name), image, contours, patients.get(name))
    return Contents(
        title=place.resolve().name or "/",
        slides=slides,
        names=names_file,
        prototypes=sets | _sets_of_models(loaded, models),
        models=models,
        classifiers=_by_name(files.by_kind["tissue classifier"]),
        studies=studies,
        artefacts={kind: tuple(folders) for kind, folders in files.artefacts.items()},
        embeddings=inputs.embeddings or next(iter(files.by_kind["embeddings"]), None),
        table=table,
        annotations=folder / ANNOTATIONS,
        notes=tuple(dict.fromkeys(notes)),
        roots=roots,
    )


def load_set(path: Path) -> Prototypes:
    """Prototypes of a prototype file or of a model."""
    try:
        read_about(path)
    except InputError:
        return load_prototypes(path)
    prototypes = load_model(path).prototypes
    if prototypes is None:
        raise InputError(f"{path}: a model without prototypes, expected a prototype file")
    return prototypes


def _check(place: Path, inputs: Inputs, work: Work) -> None:
    """Refuse what cannot be opened, before the search."""
    for path in (place, inputs.slides, *inputs.allow_folders):
        if path is not None and not path.exists():
            raise InputError(f"{path}: no such file or folder; expected a job, features or slides")
    for model in inputs.models:
        read_about(model)
    if inputs.study is not None:
        read_record(inputs.study)
    if inputs.embeddings is not None:
        content = map_all(survey, [inputs.embeddings], "", work)[0]
        if content["kind"] != "embeddings":
            expected = f"{inputs.embeddings}: no embeddings, expected the .h5ad or .zarr of `panther embed`"
            raise InputError(content.get("problem") or expected)
    if inputs.names is not None and not inputs.names.parent.is_dir():
        raise InputError(f"{inputs.names}: there is no folder {inputs.names.parent}")


def scan(place: Path, roots: Roots, left_out: Set[str] = frozenset()) -> Files:
    """Files below ``place`` by kind, without those ``left_out`` (real paths) and those that links lead out to."""
    result = Files()
    if place.is_file():
        return result
    files = sorted(files_below(place, locked=result.locked), key=lambda file: (len(file.parts), str(file)))
    result.outside = [file for file in files if file.is_symlink() and not roots.hold(file)]
    unusable = {*result.outside, *(file for file in files if left_out and realpath(file) in left_out)}
    # folders of other commands are opened as a whole or, if a link leads out of one, not at all
    has_links = {parent for file in result.outside for parent in file.parents}
    runs = [file.parent for file in files if file.name == RECORD and (file.parent / STUDY).exists()]
    result.studies = [folder for folder in runs if folder not in has_links]
    artefacts = [file for file in files if file.name in ARTEFACTS]
    for file in artefacts:
        if file.parent not in has_links:
            result.artefacts[file.stem].append(file.parent)
    closed = {
        *runs,
        *((place / "cache", place / "models") if place in runs else ()),
        *(file.parent for file in artefacts),
    }
    closed -= {place}
    is_usable = {folder: closed.isdisjoint((folder, *folder.parents)) for folder in {file.parent for file in files}}
    for file in files:
        if not is_usable[file.parent] or file in unusable:
            continue
        suffix = file.suffix.lower()
        if file.name in NAMES:
            result.by_kind["names"].append(file)
        elif file.parent.name == CONTOURS and suffix == ".geojson":
            result.contours.setdefault(composed(file.stem), file)
        elif is_stored_embeddings(file):
            result.by_kind["embeddings"].append(file)
        elif suffix in ENDINGS:
            result.by_kind[ENDINGS[suffix]].append(file)
        else:
            # pickles of the published code are never executed
            is_open = suffix in (".safetensors", ".pkl") and len(result.features.get(file.parent, ())) <= MANY
            kind = survey(file)["kind"] if is_open else None
            if kind in KINDS:
                result.by_kind[kind].append(file)
            elif suffix in BAG_SUFFIXES and not (is_store(file) and is_image(file)):
                result.features[file.parent].append(file)
    return result


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


def _find_features(
    place: Path,
    explicit: Path | None,
    files: Files,
    prototypes: Prototypes | None,
    roots: Roots,
    work: Work,
    notes: list[str],
) -> dict[str, Openable]:
    """Features by slide: the explicit ones, else of the kind that the prototypes were fitted on, else that of most slides."""
    if explicit is not None or place.is_file():
        if explicit is None and is_slide(place):
            return {}
        listing = list_bags(explicit or place)
        notes += list(listing.problems.values())[:3]
        return {ref.sample: ref for ref in listing.refs if _are_inside(ref.files, roots, notes)}
    by_kind: dict[_Kind, dict[Path, bool]] = defaultdict(dict)  # kind -> its folders, and whether they have coordinates
    for folder, kind, has_coords in _sample_kinds(files.features, work):
        by_kind[kind][folder] = has_coords
    bags = {kind: _bags(files.features, folders, notes) for kind, folders in by_kind.items()}
    chosen = max(bags, key=lambda kind: (kind.dim > 0, kind.suits(prototypes), len(bags[kind])), default=None)
    if chosen is None:
        return {}
    others = ", ".join(str(kind) for kind in bags if kind != chosen and kind.dim)
    if others:
        notes.append(f"Features of {chosen} are shown, not those of {others}; `panther view FOLDER --features OTHER`.")
    return bags[chosen]


def _sample_kinds(folders: Mapping[Path, Sequence[Path]], work: Work) -> Iterator[tuple[Path, _Kind, bool]]:
    """Folders that hold features, their kind and whether they have coordinates, by a few files of each."""
    samples = {
        folder: files[:: max(1, (len(files) - 1) // (SAMPLED - 1))][:SAMPLED] for folder, files in folders.items()
    }
    contents, _failures = collect(survey, [file for files in samples.values() for file in files], "looking", work)
    for folder, files in samples.items():
        sampled = [contents.get(str(file), {"kind": "problem"}) for file in files]
        bag = next((content for content in sampled if content["kind"] == "bag"), None)
        if bag is not None:
            yield folder, _Kind(bag["encoder"], bag["dim"], (bag["patch_spec"] or {}).get("mpp")), bag["coords"]
        elif all(content["kind"] == "problem" for content in sampled):
            yield folder, _Kind(), False  # damaged: the page shows the reason of each slide


def _bags(
    folders: Mapping[Path, Sequence[Path]], has_coords: Mapping[Path, bool], notes: list[str]
) -> dict[str, Openable]:
    """One file a slide; CLAM keeps each twice, once without coordinates. Pieces are left out where their slide is there."""
    bags: dict[str, Openable] = {}
    for folder in sorted(has_coords, key=lambda folder: (not has_coords[folder], -len(folders[folder]), folder)):
        for file in folders[folder]:
            name = as_text(file.stem)
            if name is None:
                notes.append(not_text(file))
            else:
                bags.setdefault(name, BagRef(name, (file,)))
    return {name: bag for name, bag in bags.items() if slide_of(name) == name or slide_of(name) not in bags}


def _find_images(place: Path, explicit: Path | None, roots: Roots, notes: list[str]) -> dict[str, Path]:
    if explicit is None and place.is_file() and not is_slide(place):
        return {}
    try:
        listing = list_slides([explicit or place])
    except InputError:
        if explicit is not None:
            raise
        return {}
    notes += list(listing.problems.values())[:3]
    return {ref.name: ref.path for ref in listing.refs if _are_inside((ref.path, *ref.files), roots, notes)}


def _find_table(
    inputs: Inputs, tables: Sequence[Path], studies: Mapping[str, Path], slides: Sequence[str], notes: list[str]
) -> ClinicalTable | None:
    """The explicit table, or the first one with some of these slides; that of a study if there is no other."""
    if inputs.table is not None:
        table = read_clinical(inputs.table, columns=inputs.columns)
        count = len({*table.who.slide} & {*slides})
        if count < len(slides):
            notes.append(f"{inputs.table}: {count} of the {len(slides)} slides are in the table.")
        return table
    small = [path for path in tables if path.exists() and path.stat().st_size <= LARGEST_TABLE]
    small.sort(key=lambda path: path.name == "summary.csv")  # a job's table comes last: it has no patients
    for path in [*small[:TABLES_TRIED], *(study / COHORT for study in studies.values())]:
        with suppress(InputError):
            table = read_clinical(path, columns=inputs.columns)
            if not {*slides}.isdisjoint(table.who.slide):
                return table
    return None


def _sets_of_models(loaded: Iterable[Prototypes], models: Mapping[str, Path]) -> dict[str, Path]:
    """Prototypes that only a model holds, as sets."""
    hashes = {prototypes.content_hash() for prototypes in loaded}
    sets = {}
    for name, path in list(models.items())[:MODELS_READ]:
        with suppress(InputError):  # reported where the model is used
            prototypes = load_model(path).prototypes
            if prototypes is not None and prototypes.content_hash() not in hashes:
                hashes.add(prototypes.content_hash())
                sets[f"{name} (model)"] = path
    return sets


def _are_inside(files: Iterable[Path], roots: Roots, notes: list[str]) -> bool:
    outside = [file for file in files if not roots.hold(file)]
    notes += _unread(outside[:1])
    return not outside


def _unread(outside: Sequence[Path], locked: Sequence[Path] = ()) -> list[str]:
    """Notes on files and folders that are not read."""
    notes = []
    if outside:
        count = f"{len(outside)} files are links" if len(outside) > 1 else "1 file is a link"
        allow = f"`panther view FOLDER --allow-folder {outside[0].resolve().parent}` follows them"
        notes.append(f"{count} out of the opened folders, e.g. {outside[0].name}; {allow}.")
    if locked:
        notes.append(f"{len(locked)} folders cannot be listed, e.g. {locked[0]}.")
    return notes


def _by_name(paths: Iterable[Path]) -> dict[str, Path]:
    """Short names: the file's, with as many folders before it as distinguish it from others."""
    tails = {path: [*path.resolve().parts[1:-1], path.name if path.is_dir() else path.stem] for path in paths}
    named = {}
    for path, parts in tails.items():
        others = [other for key, other in tails.items() if key != path]
        lengths = (n for n in range(1, len(parts)) if all(other[-n:] != parts[-n:] for other in others))
        named["/".join(parts[-next(lengths, len(parts)) :])] = path
    return named

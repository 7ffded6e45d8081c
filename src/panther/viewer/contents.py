"""Everything that the viewer can show: slides, features, prototypes, models and results below a folder."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from panther.engine import LOCAL, Work, map_all
from panther.errors import InputError
from panther.explain.scene import is_slide
from panther.models.model import load_model, read_about
from panther.slides import list_slides
from panther.storage.clinical import USUAL, ClinicalTable, Columns, read_clinical
from panther.storage.names import composed
from panther.storage.prototypes import load_prototypes
from panther.storage.survey import survey
from panther.study.results import COHORT, read_record
from panther.types import Openable, Prototypes
from panther.viewer.discovery import NAMES, Discovered, Roots, find_features, sort_out

OVERLAY = ".overlay.tif"  # a picture of `panther map`, no slide
LARGEST_TABLE = 64 << 20  # bytes; a larger one is no clinical table, unless it is explicit
TABLES_TRIED = 32
MODELS_READ = 16  # models whose prototypes become sets


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
    roots = Roots(tuple({path.resolve(): None for path in opened}), opened)
    discovered = sort_out(place, roots, leave_out=[path for path in inputs.paths if path.is_file()])
    files = discovered.files
    models = _by_name(inputs.models or files["model"])
    sets = _by_name(inputs.prototypes or files["prototypes"])
    loaded = [load_set(path) for path in sets.values()]
    notes = _about_unread(discovered.outside, discovered.locked)
    features = find_features(place, inputs.features, discovered.features, next(iter(loaded), None), work, notes)
    images = _images(place, inputs, roots, notes)
    if inputs.features is not None:  # others have been checked
        features = {name: ref for name, ref in features.items() if _all_inside(ref.files, roots, notes)}
    slides = _slides(features, images, discovered.contours)
    if not slides:
        raise InputError(_nothing(place, discovered))
    studies = _by_name([inputs.study] if inputs.study else discovered.studies)
    table = _table(inputs, files["table"], studies, slides, notes)
    patients = {} if table is None else dict(zip(table.who.slide, table.who.patient, strict=True))
    return Contents(
        title=place.resolve().name or "/",
        slides={name: replace(one, patient=patients.get(name)) for name, one in slides.items()},
        names=_names(place, inputs.names, files["names"], roots),
        prototypes=sets | _sets_of_models(loaded, models),
        models=models,
        classifiers=_by_name(files["tissue classifier"]),
        studies=studies,
        artefacts={kind: tuple(folders) for kind, folders in discovered.artefacts.items()},
        embeddings=inputs.embeddings or next(iter(files["embeddings"]), None),
        table=table,
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
        about = map_all(survey, [inputs.embeddings], "", work)[0]
        if about["kind"] != "embeddings":
            raise InputError(
                about.get("problem") or f"{inputs.embeddings}: no embeddings, expected the .h5ad of `panther embed`"
            )
    if inputs.names is not None and not inputs.names.parent.is_dir():
        raise InputError(f"{inputs.names}: there is no folder {inputs.names.parent}")


def _sets_of_models(known: Iterable[Prototypes], models: Mapping[str, Path]) -> dict[str, Path]:
    """Prototypes that only a model holds, as sets."""
    seen = {prototypes.content_hash() for prototypes in known}
    sets = {}
    for name, path in list(models.items())[:MODELS_READ]:
        try:
            prototypes = load_model(path).prototypes
        except InputError:
            continue  # reported where the model is used
        if prototypes is not None and prototypes.content_hash() not in seen:
            seen.add(prototypes.content_hash())
            sets[f"{name} (model)"] = path
    return sets


def _images(place: Path, inputs: Inputs, roots: Roots, notes: list[str]) -> dict[str, Path]:
    if inputs.slides is None and place.is_file() and not is_slide(place):
        return {}
    try:
        listing = list_slides([inputs.slides or place])
    except InputError:
        if inputs.slides is not None:
            raise
        return {}
    notes += list(listing.problems.values())[:3]
    images = {ref.name: ref for ref in listing.refs if not ref.path.name.lower().endswith(OVERLAY)}
    return {name: ref.path for name, ref in images.items() if _all_inside((ref.path, *ref.files), roots, notes)}


def _slides(
    features: Mapping[str, Openable], images: Mapping[str, Path], contours: Mapping[str, Path]
) -> dict[str, SlideEntry]:
    slides = {}
    for name in sorted({*features, *images}):
        image = images.get(name)
        # QuPath names its export after the whole file name; as in `panther slides` that one goes first
        outline = contours.get(composed(image.name) if image else name, contours.get(name))
        slides[name] = SlideEntry(name, features.get(name), image, outline)
    return slides


def _table(
    inputs: Inputs,
    tables: Iterable[Path],
    studies: Mapping[str, Path],
    slides: Mapping[str, SlideEntry],
    notes: list[str],
) -> ClinicalTable | None:
    """The explicit table, or the first one with some of these slides; that of a study if there is no other."""
    if inputs.table is not None:
        table = read_clinical(inputs.table, columns=inputs.columns)
        known = len(set(table.who.slide) & set(slides))
        if known < len(slides):
            notes.append(f"{inputs.table}: {known} of the {len(slides)} slides are in the table.")
        return table
    small = [path for path in tables if path.exists() and path.stat().st_size <= LARGEST_TABLE]
    small.sort(key=lambda path: path.name == "summary.csv")  # a job's table comes last: it has no patients
    for path in [*small[:TABLES_TRIED], *(study / COHORT for study in studies.values())]:
        try:
            table = read_clinical(path, columns=inputs.columns)
        except InputError:
            continue
        if set(table.who.slide) & set(slides):
            return table
    return None


def _names(place: Path, explicit: Path | None, discovered: Sequence[Path], roots: Roots) -> Path:
    """Names file: it is written, so a link that leads elsewhere must be explicit."""
    if explicit is not None:
        return explicit
    path = next(iter(discovered), (place.parent if place.is_file() else place) / NAMES[0])
    if path.is_symlink() and not roots.hold(path):
        raise InputError(
            f"{path}: is a link out of the folder; `panther view FOLDER --names FILE` names the file itself"
        )
    return path


def _all_inside(files: Iterable[Path], roots: Roots, notes: list[str]) -> bool:
    outside = [file for file in files if not roots.hold(file)]
    notes += _about_unread(outside[:1])
    return not outside


def _about_unread(outside: Sequence[Path], locked: Sequence[Path] = ()) -> list[str]:
    notes = []
    if outside:
        count = f"{len(outside)} files are links" if len(outside) > 1 else "1 file is a link"
        allow = f"`panther view FOLDER --allow-folder {outside[0].resolve().parent}` follows them"
        notes.append(f"{count} out of the opened folders, e.g. {outside[0].name}; {allow}.")
    if locked:
        notes.append(f"{len(locked)} folders cannot be listed, e.g. {locked[0]}; check their permissions.")
    return notes


def _nothing(place: Path, discovered: Discovered) -> str:
    if unread := _about_unread(discovered.outside, discovered.locked):
        return " ".join((f"{place}: nothing to show.", *unread))
    if discovered.studies:
        return f"{place}: a study alone; give the folder of its features or slides, and this one with `study=`"
    return f"{place}: neither slides nor features, expected the folder that `panther slides` wrote, or `features=`"


def _by_name(paths: Iterable[Path]) -> dict[str, Path]:
    """Short names: the file's, with as many folders before it as tell it from others."""
    tails = {path: [*path.resolve().parts[1:-1], path.name if path.is_dir() else path.stem] for path in paths}
    named = {}
    for path, parts in tails.items():
        others = [other for key, other in tails.items() if key != path]
        lengths = (n for n in range(1, len(parts)) if all(other[-n:] != parts[-n:] for other in others))
        named["/".join(parts[-next(lengths, len(parts)) :])] = path
    return named

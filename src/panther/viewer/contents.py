"""What there is to show: slides, features, prototypes, models and results below a folder, found by what the files hold."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from panther.engine import HERE, Work, map_all
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
LARGEST_TABLE = 64 << 20  # bytes; a larger one is no clinical table, unless it is named
TABLES_TRIED = 32
MODELS_READ = 16  # models whose own prototypes are looked at


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
        """What is read of it: features, image (of a DICOM slide its folder), contours."""
        features = () if self.features is None else self.features.files
        return (*features, *(path for path in (self.image, self.contours) if path is not None))


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
    roots: Roots | None = None  # what was opened; None: whoever made this vouches for its paths


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
    columns: Columns = USUAL
    allow_folders: tuple[Path, ...] = ()  # links into them are followed

    @property
    def paths(self) -> list[Path]:
        """All of them that were named."""
        single = (self.features, self.slides, self.embeddings, self.study, self.table, self.names)
        return [path for path in (*single, *self.prototypes, *self.models, *self.allow_folders) if path is not None]


NOTHING_MORE = Given()


def find_contents(place: Path, given: Given = NOTHING_MORE, work: Work = HERE) -> Contents:
    """Look below ``place`` for everything that the viewer can show; files that could crash their library are opened by ``work``."""
    _check(place, given, work)
    opened = (place, *given.paths)
    roots = Roots(tuple({path.resolve(): None for path in opened}), opened)
    discovered = sort_out(place, roots, leave_out=[path for path in given.paths if path.is_file()])
    models = _by_name(given.models or discovered.models)
    sets = _by_name(given.prototypes or discovered.prototypes)
    loaded = [load_set(path) for path in sets.values()]
    notes = [*_about_links(discovered.outside), *_about_locked(discovered.locked)]
    features = find_features(place, given.features, discovered.features, next(iter(loaded), None), work, notes)
    images = _images(place, given, roots, notes)
    if given.features is not None:  # what was found below the folder has been looked at
        features = {name: ref for name, ref in features.items() if _all_inside(ref.files, roots, notes)}
    slides = _slides(features, images, discovered.contours)
    if not slides:
        raise InputError(_nothing(place, discovered))
    studies = _by_name([given.study] if given.study else discovered.studies)
    table = _table(given, discovered.tables, studies, slides, notes)
    patients = {} if table is None else dict(zip(table.who.slide, table.who.patient, strict=True))
    return Contents(
        title=place.resolve().name or str(place.resolve()),
        slides={name: replace(one, patient=patients.get(name)) for name, one in slides.items()},
        names=_names(place, given.names, discovered, roots),
        prototypes=sets | _sets_of_models(loaded, models),
        models=models,
        classifiers=_by_name(discovered.classifiers),
        studies=studies,
        artefacts={kind: tuple(folders) for kind, folders in discovered.artefacts.items()},
        embeddings=given.embeddings or next(iter(discovered.embeddings), None),
        table=table,
        notes=tuple(dict.fromkeys(notes)),
        roots=roots,
    )


def load_set(path: Path) -> Prototypes:
    """Prototypes of a file of them, or of a model."""
    if path.suffix.lower() == ".safetensors":
        try:
            read_about(path)
        except InputError:
            return load_prototypes(path)
        prototypes = load_model(path).prototypes
        if prototypes is None:
            raise InputError(f"{path}: this model has no prototypes; give a prototype file.")
        return prototypes
    return load_prototypes(path)


def _check(place: Path, given: Given, work: Work) -> None:
    """Refuse what cannot be opened, before anything is looked for."""
    if not place.exists():
        raise InputError(
            f"{place}: there is no such file or folder; give the folder of a job, of features or of slides."
        )
    for model in given.models:
        read_about(model)
    if given.study is not None:
        read_record(given.study)
    if (
        given.embeddings is not None
        and (about := map_all(survey, [given.embeddings], "", work)[0])["kind"] != "embeddings"
    ):
        raise InputError(
            about.get("problem") or f"{given.embeddings}: these are no embeddings (.h5ad); `panther embed` writes them."
        )
    for folder in (given.slides, *given.allow_folders):
        if folder is not None and not folder.exists():
            raise InputError(f"{folder}: there is no such file or folder.")
    if given.names is not None and not given.names.parent.is_dir():
        raise InputError(f"{given.names}: there is no folder {given.names.parent}; names could not be kept there.")


def _sets_of_models(known: Iterable[Prototypes], models: Mapping[str, Path]) -> dict[str, Path]:
    """Prototypes that only a model holds, as sets of their own."""
    seen = {prototypes.content_hash() for prototypes in known}
    own = {}
    for name, path in list(models.items())[:MODELS_READ]:
        try:
            held = load_model(path).prototypes
        except InputError:
            continue  # reported where the model is used
        if held is not None and held.content_hash() not in seen:
            seen.add(held.content_hash())
            own[f"{name} (model)"] = path
    return own


def _images(place: Path, given: Given, roots: Roots, notes: list[str]) -> dict[str, Path]:
    where = given.slides or place
    if given.slides is None and place.is_file() and not is_slide(place):
        return {}
    try:
        listing = list_slides([where])
    except InputError:
        if given.slides is not None:
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
    given: Given,
    tables: Iterable[Path],
    studies: Mapping[str, Path],
    slides: Mapping[str, SlideEntry],
    notes: list[str],
) -> ClinicalTable | None:
    """The table given, or the first one found that tells of these slides; that of a study where there is no other."""
    if given.table is not None:
        table = read_clinical(given.table, columns=given.columns)
        known = len(set(table.who.slide) & set(slides))
        if known < len(slides):
            notes.append(f"{given.table}: {known} of the {len(slides)} slides are in the table.")
        return table
    small = [path for path in tables if _size(path) <= LARGEST_TABLE]
    # a job's own table comes last: it knows of patches, not of patients
    small.sort(key=lambda path: path.name == "summary.csv")
    for path in [*small[:TABLES_TRIED], *(study / COHORT for study in studies.values())]:
        try:
            table = read_clinical(path, columns=given.columns)
        except InputError:
            continue
        if set(table.who.slide) & set(slides):
            return table
    return None


def _names(place: Path, given: Path | None, discovered: Discovered, roots: Roots) -> Path:
    """Where names are kept: they are written, so a link that leads elsewhere must be the user's own word."""
    if given is not None:
        return given
    folder = place.parent if place.is_file() else place
    path = next(iter(discovered.names), folder / NAMES[0])
    if path.is_symlink() and not roots.hold(path):
        raise InputError(
            f"{path}: names would be written through this link, out of the folder; name the file itself with `names=`."
        )
    return path


def _all_inside(files: Iterable[Path], roots: Roots, notes: list[str]) -> bool:
    outside = [file for file in files if not roots.hold(file)]
    notes += _about_links(outside[:1])
    return not outside


def _about_links(outside: Sequence[Path]) -> list[str]:
    if not outside:
        return []
    real = outside[0].resolve()
    count = f"{len(outside)} files are links" if len(outside) > 1 else "1 file is a link"
    return [
        f"{count} out of the opened folders and left out, e.g. {outside[0].name}; `panther view FOLDER --allow-folder {real.parent}` follows them."
    ]


def _about_locked(locked: Sequence[Path]) -> list[str]:
    return [f"{len(locked)} folders cannot be listed, e.g. {locked[0]}; check their permissions."] if locked else []


def _nothing(place: Path, discovered: Discovered) -> str:
    if discovered.outside or discovered.locked:
        return " ".join(
            (f"{place}: nothing to show.", *_about_links(discovered.outside), *_about_locked(discovered.locked))
        )
    if discovered.studies:
        return (
            f"{place}: results of a study alone; give the folder of its features or slides, and this one with `study=`."
        )
    return f"{place}: neither slides nor features were found there; give the folder that `panther slides` wrote, or `features=`."


def _by_name(paths: Iterable[Path]) -> dict[str, Path]:
    """Short names: the file's own, with as many folders before it as tell it from others."""
    paths, named = list(paths), {}
    for path in paths:
        parts = [*path.resolve().parts[1:-1], path.name if path.is_dir() else path.stem]
        alike = [other for other in paths if other != path and _stem(other) == parts[-1]]
        length = next(
            (n for n in range(1, len(parts)) if all(_tail(other, n) != parts[-n:] for other in alike)), len(parts)
        )
        named["/".join(parts[-length:])] = path
    return named


def _stem(path: Path) -> str:
    return path.name if path.is_dir() else path.stem


def _tail(path: Path, length: int) -> list[str]:
    return [*path.resolve().parts[1:-1], _stem(path)][-length:]


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0

"""Folders of bags: which files are the slides of a cohort, and which of them belong to one patient."""

import logging
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from panther.encoder_names import same_encoder
from panther.errors import InputError, NotABagError
from panther.patch_spec import in_common
from panther.storage.names import as_text, not_text
from panther.storage.readers import BAG_SUFFIXES, open_bag
from panther.types import Bag, Concatenated, check_resolution

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Reading:
    """What the user says about feature files: their encoder, where they name another or none, and whether resolutions may be mixed."""

    encoder_name: str | None = None
    any_resolution: bool = False


AS_WRITTEN = Reading()


@dataclass(frozen=True)
class BagRef:
    """Where one sample's patches are: a slide's file, or the files of all slides of a patient. Small enough to send anywhere."""

    sample: str
    paths: tuple[Path, ...]
    reading: Reading = AS_WRITTEN
    meant: bool = False  # named by the user or the table: a file without features is then a failure, never passed over

    def __str__(self) -> str:
        return self.sample

    @property
    def files(self) -> tuple[Path, ...]:
        """Files that hold the patches."""
        return self.paths

    def open(self) -> Bag:
        """Bag of the sample; several slides are one bag."""
        said = self.reading
        try:
            bags = [
                open_bag(path, encoder_name=said.encoder_name, any_resolution=said.any_resolution)
                for path in self.paths
            ]
        except NotABagError as error:
            if self.meant:
                raise InputError(str(error)) from error
            raise
        return bags[0] if len(bags) == 1 else concatenate(self.sample, bags)


@dataclass(frozen=True)
class Listing:
    """What a path holds: samples that can be opened, and a sentence for each file that cannot be used."""

    refs: tuple[BagRef, ...]
    problems: Mapping[str, str]  # sample -> sentence
    ignored: int = 0  # files that do not pretend to be bags


def join(sample: str, refs: Iterable[BagRef]) -> BagRef:
    """One sample of several: the slides of a patient are one bag."""
    refs = list(refs)
    return BagRef(sample, tuple(path for ref in refs for path in ref.paths), refs[0].reading, meant=True)


def list_bags(path: Path | str, leave_out: Path | None = None, reading: Reading = AS_WRITTEN) -> Listing:
    """Find the bags of a file or a folder (searched in depth), sorted by slide; files are only opened where two share a name.

    ``leave_out`` is a folder inside it that is not looked into, e.g. the output of an earlier conversion.
    A slide that is there twice with different features is not used at all: which one is meant, only the user knows.
    """
    path = Path(path)
    if path.is_file() or (path.is_symlink() and not path.exists()):
        name = as_text(path.stem)
        if name is None:
            raise InputError(not_text(path))
        return Listing((BagRef(name, (path,), reading, meant=True),), {})
    if not path.is_dir():
        raise InputError(f"{path}: there is no such file or folder.")
    by_slide: dict[str, list[Path]] = defaultdict(list)
    ignored, problems = 0, {}
    for file in files_below(path, leave_out):
        name = as_text(file.stem)
        if file.suffix.lower() in BAG_SUFFIXES and name is None:
            problems[ascii(file.stem)] = not_text(file)
        elif file.suffix.lower() in BAG_SUFFIXES and name is not None:
            by_slide[name].append(file)
        else:
            ignored += 1
    if not by_slide:
        if problems:
            raise InputError(next(iter(problems.values())))
        raise InputError(
            f"{path}: no feature files found ({ignored} other files); expected one of {', '.join(BAG_SUFFIXES)} for each slide."
        )
    refs = []
    for slide, files in sorted(by_slide.items()):
        try:
            use = files[0] if len(files) == 1 else one_of(path, slide, files)
            refs.append(BagRef(slide, (use,), reading))
        except InputError as error:
            problems[slide] = str(error)
    if ignored:
        logger.info("%s: %d files without a feature file's ending were passed over.", path, ignored)
    if not refs:
        raise InputError(f"{path}: no slide can be used. {next(iter(problems.values()))}")
    return Listing(tuple(refs), problems, ignored)


def group_by_patient(listing: Listing, patients: Mapping[str, str]) -> tuple[Listing, list[str]]:
    """Join the slides of each patient into one sample; also returns the slides that the mapping does not name."""
    groups: dict[str, list[BagRef]] = defaultdict(list)
    unknown = []
    for ref in listing.refs:
        if ref.sample in patients:
            groups[patients[ref.sample]].append(ref)
        else:
            unknown.append(ref.sample)
    refs = tuple(join(patient, slides) for patient, slides in sorted(groups.items()))
    return Listing(refs, listing.problems, listing.ignored), unknown


def concatenate(sample: str, bags: Iterable[Bag]) -> Bag:
    """One bag of several; they must agree in dimension, encoder and resolution."""
    bags = list(bags)
    first = bags[0]
    for bag in bags[1:]:
        if bag.dim != first.dim or not same_encoder(bag.encoder, first.encoder):
            raise InputError(
                f"{sample}: {first.source} has {first.dim} features (encoder {first.encoder!r}) but {bag.source} has {bag.dim} "
                f"({bag.encoder!r}); the slides of a patient must share one encoder."
            )
        check_resolution(bag, first.spec, f"{first.source}, a slide of the same sample, has")
    encoder = next((bag.encoder for bag in bags if bag.encoder), None)
    rows, spec = Concatenated(tuple(bag.features for bag in bags)), in_common([bag.spec for bag in bags])
    return Bag(sample, rows, None, spec, encoder, first.format, any_resolution=first.any_resolution)


def files_below(folder: Path, leave_out: Path | None = None) -> list[Path]:
    """Everything below a folder but folders, hidden ones left out; links count even where they lead nowhere."""
    other = None if leave_out is None or leave_out.resolve() == folder.resolve() else leave_out.resolve()
    found = []
    for place, folders, files in os.walk(folder, onerror=_cannot_be_listed):
        here = Path(place)
        folders[:] = [f for f in folders if not f.startswith(".") and (other is None or (here / f).resolve() != other)]
        linked = [f for f in folders if (here / f).is_symlink() and Path(f).suffix.lower() in BAG_SUFFIXES]
        found += [here / f for f in (*files, *linked) if not f.startswith(".")]
    return sorted(found)


def _cannot_be_listed(error: OSError) -> None:
    raise InputError(f"{error.filename}: cannot be listed ({error.strerror}); check its permissions.") from error


def one_of(folder: Path, slide: str, files: list[Path]) -> Path:
    """Return the file to use of several with one name: the only bag among them, or any where all hold the same features.

    CLAM keeps each slide three times: coordinates in `patches`, features in `h5_files` and once more in `pt_files`.
    """
    bags = {}
    for file in files:
        try:
            bags[file] = open_bag(file)
        except NotABagError:
            continue
    if not bags:
        return files[0]  # coordinates only: passed over where they are opened
    if len({bag.fingerprint() for bag in bags.values()}) != 1:
        places = " and ".join(str(file.relative_to(folder)) for file in files)
        raise InputError(
            f"{slide}: the slide is there more than once ({places}); give the folder you mean, or remove one."
        )
    return max(bags, key=lambda file: bags[file].places is not None)

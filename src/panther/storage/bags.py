"""Folders of bags: which files are the slides of a cohort, which of them belong to one patient, and the hashes of their features."""

import json
import logging
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from os.path import realpath  # Path.resolve() raises for a link onto itself
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from panther.engine import LOCAL, Work, stream
from panther.errors import InputError, NotABagError, not_finite, note
from panther.patches import encoder_words, in_common, same_encoder
from panther.rows import as_matrix
from panther.statistics import first_bad_row
from panther.storage.isolated import call_isolated
from panther.storage.names import as_text, composed, not_text, slide_of
from panther.storage.readers import BAG_SUFFIXES, STORE, is_store, open_bag
from panther.store import HashedRows, atomic_write, stamp_of
from panther.types import Bag, Concatenated, Openable, check_resolution

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Reading:
    """Options for reading feature files: the name of their encoder, and whether resolutions may be mixed."""

    encoder_name: str | None = None
    allow_mixed_resolution: bool = False


AS_WRITTEN = Reading()


@dataclass(frozen=True)
class BagRef:
    """The feature files of a slide, or of all slides of a patient; small enough to send to another process."""

    sample: str  # name of the slide or patient
    files: tuple[Path, ...]
    reading: Reading = AS_WRITTEN
    explicit: bool = False  # named by the user or a table: a file without features fails, else it is passed over

    def __str__(self) -> str:
        return self.sample

    def open(self) -> Bag:
        """Bag of the slide or patient; several slides are one bag."""
        try:
            bags = list(map(partial(open_bag, **asdict(self.reading)), self.files))
        except NotABagError as error:
            if self.explicit:
                raise InputError(str(error)) from error
            raise
        return bags[0] if len(bags) == 1 else concatenate(self.sample, bags)


@dataclass(frozen=True)
class Listing:
    """Bags of a cohort (a sequence), and the reason for each file that cannot be used."""

    refs: tuple[Openable, ...]
    problems: Mapping[str, str]  # slide -> reason
    ignored: int = 0  # files that are no bags

    def __len__(self) -> int:
        return len(self.refs)

    def __iter__(self) -> Iterator[Openable]:
        return iter(self.refs)


BagLike = Openable | np.ndarray | Tensor | Path | str
BagsLike = Path | str | Listing | Sequence[BagLike] | Mapping[str, BagLike]


def as_bags(features: BagsLike, reading: Reading = AS_WRITTEN) -> Listing:
    """Bags of a folder, of files, or in memory.

    Parameters
    ----------
    features : path, list, mapping or Listing
        A folder (searched in depth) or a feature file; a list of paths, arrays (N, d), `Bag` or `BagRef`; a mapping of slide names to
        these, or a pandas Series of them; or a listing, as `list_bags` returns it. Arrays in a list are named by their position: "0", "1", ...
    reading : Reading
        Name of the encoder, and whether resolutions may be mixed.

    Returns
    -------
    Listing
        References (or bags in memory) in the same order, files of a folder sorted by slide; and the files that cannot be used.
    """
    if isinstance(features, (str, Path)):
        return list_bags(features, reading=reading)
    if isinstance(features, Listing):
        return replace(features, refs=tuple(_read_as(ref, reading) for ref in features.refs))
    one_bag = isinstance(features, (Bag, BagRef, np.ndarray, Tensor)) or hasattr(features, "select_dtypes")  # pandas
    if one_bag or not isinstance(features, Iterable):
        kind = type(features).__name__
        raise InputError(f"features: found {kind}, expected a folder, a file, or a list of bags: [features]")
    listings = [_listed(one, name, index, reading) for index, (name, one) in enumerate(_named(features))]
    if not listings:
        raise InputError("the list of features is empty, expected at least one bag, array or path")
    refs = tuple(ref for listing in listings for ref in listing.refs)
    twice = [name for name, count in Counter(ref.sample for ref in refs).items() if count > 1]
    if twice:
        raise InputError(f"Two bags have the name {twice[0]!r}, expected unique names of slides")
    problems = {name: problem for listing in listings for name, problem in listing.problems.items()}
    return Listing(refs, problems, sum(listing.ignored for listing in listings))


def is_series(features: object) -> bool:
    """Whether it is a pandas Series, which names what it holds."""
    return hasattr(features, "items") and hasattr(features, "index") and not isinstance(features, Mapping)


def _named(features: Any) -> Iterable[tuple[str | None, BagLike]]:
    """Bags with their names; None where there is none, as for paths in a Series with numbered rows."""
    if not (isinstance(features, Mapping) or is_series(features)):
        return ((None, one) for one in features)
    return (
        (None if isinstance(n, int) and isinstance(one, (str, Path)) else str(n), one) for n, one in features.items()
    )


def _listed(one: BagLike, name: str | None, index: int, reading: Reading) -> Listing:
    """Bags of one entry of a list or mapping; a folder holds several."""
    if isinstance(one, (str, Path)):
        listing = list_bags(one, reading=reading)
        if name is None:
            return listing
        return replace(listing, refs=(join(composed(str(name)), listing.refs),))
    ref = one if isinstance(one, Openable) else as_bag(one, str(index if name is None else name))
    sample = composed(ref.sample if name is None else str(name))
    if ref.sample != sample:
        ref = replace(ref, sample=sample) if isinstance(ref, BagRef) else replace(ref.open(), slide_id=sample)
    return Listing((_read_as(ref, reading),), {})


def as_bag(bag: BagLike, name: str = "0") -> Bag:
    """One bag from an array (N, d), the path of a feature file, a `Bag` or a reference to one."""
    if isinstance(bag, Openable):
        return bag.open()
    if isinstance(bag, (str, Path)):
        return open_bag(bag)
    return Bag(name, as_matrix(f"Bag {name}", bag))


def _read_as(ref: Openable, reading: Reading) -> Openable:
    """The same reference with the user's options."""
    if reading == AS_WRITTEN:
        return ref
    if isinstance(ref, BagRef):
        return replace(ref, reading=reading)
    bag = ref.open()
    encoder = reading.encoder_name or bag.encoder
    return replace(bag, encoder=encoder, allow_mixed_resolution=reading.allow_mixed_resolution)


def explicit(ref: Openable) -> Openable:
    """The same reference, named by the user or a table: a file without features then fails."""
    return replace(ref, explicit=True) if isinstance(ref, BagRef) else ref


@dataclass(frozen=True)
class SlidesRef:
    """The slides of a patient as one bag, where some are not plain files."""

    sample: str
    refs: tuple[Openable, ...]

    @property
    def files(self) -> tuple[Path, ...]:
        """Files of all slides."""
        return tuple(file for ref in self.refs for file in ref.files)

    def open(self) -> Bag:
        """Patches of all slides, read lazily."""
        return concatenate(self.sample, [ref.open() for ref in self.refs])


def join(sample: str, refs: Iterable[Openable]) -> Openable:
    """The slides of a patient as one bag, opened lazily if all of them are files."""
    slides = SlidesRef(sample, tuple(refs))
    files = [ref for ref in slides.refs if isinstance(ref, BagRef)]
    if len(files) == len(slides.refs):
        return BagRef(sample, slides.files, files[0].reading, explicit=True)
    return slides if all(ref.files for ref in slides.refs) else slides.open()


def list_bags(path: Path | str, leave_out: Path | None = None, reading: Reading = AS_WRITTEN) -> Listing:
    """Find the bags of a file or a folder (searched in depth), sorted by slide; files are opened only if two share a name.

    Parameters
    ----------
    path : path
        Folder, or one feature file.
    leave_out : path, optional
        Folder inside it to skip, e.g. the output of an earlier conversion.
    reading : Reading, optional
        Name of the encoder, and whether resolutions may be mixed.

    Returns
    -------
    Listing
        References to the bags, and the reason for each file that cannot be used. A slide with two files of different features is not used:
        the choice is the user's.

    Examples
    --------
    >>> import numpy as np, panther
    >>> np.save("slide.npy", np.zeros((5, 8), np.float32))
    >>> [ref.sample for ref in panther.list_bags(".").refs]
    ['slide']
    """
    path = Path(path)
    if path.is_file() or is_store(path) or (path.is_symlink() and not path.exists()):
        name = as_text(path.stem)
        if name is None:
            raise InputError(not_text(path))
        return Listing((BagRef(name, (path,), reading, explicit=True),), {})
    if not path.is_dir():
        raise InputError(f"{path}: there is no such file or folder.")
    by_slide: dict[str, list[Path]] = defaultdict(list)
    ignored, problems = 0, {}
    for file in files_below(path, leave_out):
        if file.suffix.lower() not in BAG_SUFFIXES:
            ignored += 1
        elif (name := as_text(file.stem)) is None:
            problems[ascii(file.stem)] = not_text(file)
        else:
            by_slide[name].append(file)
    if pieces := [name for name in by_slide if slide_of(name) != name and slide_of(name) in by_slide]:
        raise InputError(f"{path}: holds {slide_of(pieces[0])} and {pieces[0]}, expected whole slides or their pieces")
    refs, copies = [], []
    for slide, files in sorted(by_slide.items()):
        try:
            use, same = (files[0], files) if len(files) == 1 else one_of(path, slide, files)
            refs.append(BagRef(slide, (use,), reading))
            if len(same) > 1:
                copies.append(" and ".join(str(file.relative_to(path)) for file in same))
        except InputError as error:
            problems[slide] = str(error)
    if copies:
        note(
            f"{path}: {len(copies)} slides are there in several files of the same features, e.g. {copies[0]}; one is used"
        )
    if ignored:
        logger.info("%s: %d files without a feature file's ending were passed over", path, ignored)
    if not refs:
        reason = f"no feature files found ({ignored} other files), expected {', '.join(BAG_SUFFIXES)}"
        raise InputError(f"{path}: {next(iter(problems.values()), reason)}")
    return Listing(tuple(refs), problems, ignored)


def group_by_patient(listing: Listing, patients: Mapping[str, str]) -> tuple[Listing, list[str]]:
    """Join the slides of each patient into one bag; also returns slides that are not in the mapping."""
    groups: dict[str, list[Openable]] = defaultdict(list)
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
            both = [f"{b.source} has {b.dim} features of {encoder_words(b.encoder)}" for b in (first, bag)]
            raise InputError(f"{sample}: {' but '.join(both)}, expected one encoder")
        check_resolution(bag, first.spec, f"{first.source}, a slide of the same sample, has")
    encoder = next((bag.encoder for bag in bags if bag.encoder), None)
    rows, spec = Concatenated(tuple(bag.features for bag in bags)), in_common([bag.spec for bag in bags])
    mixed = first.allow_mixed_resolution
    return Bag(sample, rows, None, spec, encoder, first.format, allow_mixed_resolution=mixed, slides=tuple(bags))


def files_below(folder: Path, leave_out: Path | None = None, *, locked: list[Path] | None = None) -> list[Path]:
    """All files below a folder, without hidden ones; broken links and stores of zarr are files too.

    A folder that cannot be listed is refused, or added to ``locked`` and passed over.
    """

    def on_error(error: OSError) -> None:
        if locked is None:
            raise InputError(f"{error.filename}: cannot be listed ({error.strerror})") from error
        locked.append(Path(error.filename))

    other = None if leave_out is None or realpath(leave_out) == realpath(folder) else realpath(leave_out)
    paths = []
    for parent, folders, files in os.walk(folder, onerror=on_error):
        path = Path(parent)
        folders[:] = [f for f in folders if not f.startswith(".") and (other is None or realpath(path / f) != other)]
        linked = [f for f in folders if (path / f).is_symlink() and Path(f).suffix.lower() in BAG_SUFFIXES]
        stores = [f for f in folders if f.lower().endswith(STORE)]
        folders[:] = [f for f in folders if f not in stores]
        paths += [path / f for f in dict.fromkeys((*files, *linked, *stores)) if not f.startswith(".")]
    return sorted(paths)


def one_of(folder: Path, slide: str, files: list[Path]) -> tuple[Path, list[Path]]:
    """Return the file to use of several with one name, and all bags among them, which must have the same features.

    CLAM keeps each slide three times: coordinates in `patches`, features in `h5_files` and once more in `pt_files`.
    """
    return call_isolated(_one_of, slide, folder, files)


def _one_of(slide: str, folder: Path, files: list[Path]) -> tuple[Path, list[Path]]:
    bags = {}
    for file in files:
        try:
            bags[file] = open_bag(file)
        except NotABagError:
            continue
    if not bags:
        return files[0], []  # coordinates only: passed over when opened
    if len({bag.fingerprint() for bag in bags.values()}) != 1:
        copies = " and ".join(str(file.relative_to(folder)) for file in files)
        if len({file.stem for file in files}) > 1:
            copies += ", names that differ only in how their letters are composed"
        raise InputError(f"{slide}: is there more than once with different features ({copies}), expected one file")
    return max(bags, key=lambda file: bags[file].places is not None), list(bags)


# stamp of the files (empty: too young to be trusted later) and hash of the features
Fingerprint = tuple[str, str]


def finite_content(sample: Openable) -> str:
    """Hash of a sample's features, read once; NaN and infinite numbers are refused."""
    bag = sample.open()
    rows = HashedRows(bag.features)
    bad = first_bad_row(rows)  # which reads them in order
    if bad is None:
        return rows.digest()
    for part in bag.slides or (bag,):  # of a patient: the slide with that row
        if bad < len(part):
            raise not_finite(part.source, bad)
        bad -= len(part)
    raise not_finite(bag.source, bad)


def fingerprint_all(
    samples: Mapping[str, Openable], file: Path, work: Work = LOCAL
) -> tuple[dict[str, str], dict[str, str]]:
    """Hashes of features by name, and the reason for each sample that cannot be read or holds NaN.

    Hashes are kept in ``file``; if it is lost, features are read again.
    """
    kept: dict[str, Fingerprint] = {}
    with suppress(OSError, ValueError, TypeError, AttributeError, RecursionError):  # missing, or damaged
        kept = {name: (str(stamp), str(content)) for name, (stamp, content) in json.loads(file.read_bytes()).items()}
    before = dict(kept)
    contents: dict[str, str] = {}
    failures: dict[str, str] = {}
    names = list(samples)[::-1]  # the next reader begins with the first, which are in the page cache then
    jobs = [(samples[name], kept.get(name)) for name in names]
    try:
        for index, (stamp, content) in stream(fingerprint, jobs, "looking for changed features", work, failures):
            contents[names[index]] = content
            if stamp:
                kept[names[index]] = stamp, content
    finally:
        if kept != before:
            with atomic_write(file) as temporary:
                temporary.write_text(json.dumps(kept), encoding="ascii")
    return dict(reversed(contents.items())), dict(reversed(failures.items()))


def fingerprint(job: tuple[Openable, Fingerprint | None]) -> Fingerprint:
    """Stamp and hash of a sample; features are read unless its stamp is the known one."""
    sample, known = job
    stamp = stamp_of(sample.files)
    if known is not None and stamp and stamp == known[0]:
        return known
    content = finite_content(sample)
    return (stamp if stamp == stamp_of(sample.files) else "", content)

"""Slides of files, of folders searched in depth, and of folders of DICOM files."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from os.path import realpath  # Path.resolve() raises for a link onto itself
from pathlib import Path

from panther.errors import InputError
from panther.slides.readers.zarr import is_image
from panther.slides.slide import Slide, open_slide, slide_name
from panther.storage.bags import files_below
from panther.storage.names import DICOM, SUFFIXES, as_text, composed, not_text
from panther.storage.readers import is_store

SERIES = b"\x20\x00\x0e\x00UI"  # tag and type of a DICOM file's SeriesInstanceUID; a two-byte length follows


@dataclass(frozen=True)
class SlideRef:
    """Path of a slide and the user's resolution; small enough to send to workers."""

    path: Path
    name: str
    mpp: float | None = None  # override

    @property
    def sample(self) -> str:
        """Name in messages."""
        return self.name

    @property
    def files(self) -> tuple[Path, ...]:
        """Files of the slide, for their size."""
        return tuple(sorted(self.path.glob("*.dcm"))) or (self.path,) if self.path.is_dir() else (self.path,)

    def open(self) -> Slide:
        """Open the slide."""
        return open_slide(self.path, self.mpp)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class SlideListing:
    """Slides of the given files and folders."""

    refs: tuple[SlideRef, ...]
    problems: Mapping[str, str]  # name -> reason why it cannot be used
    notes: tuple[str, ...] = ()


def list_slides(
    paths: Iterable[Path],
    table: Mapping[str, float] | None = None,
    mpp: float | None = None,
    leave_out: Path | None = None,
) -> SlideListing:
    """Slides of these files and folders, sorted by name; ``table`` (file or slide name -> mpp) overrides ``mpp``.

    Plain images are slides where they are named, not in a folder, where they are mostly thumbnails.
    """
    by_name: dict[str, list[Path]] = defaultdict(list)
    problems: dict[str, str] = {}
    for path in paths:
        if not path.exists():
            problems[str(path)] = f"{path}: there is no such file or folder"
            continue
        slides = list(_slides_in(path, leave_out)) if path.is_dir() and not is_store(path) else [path]
        if not slides:
            raise InputError(f"{path}: no slides found, expected {', '.join((*SUFFIXES, DICOM))}, or single images")
        for slide in slides:
            if as_text(slide_name(slide)) is None:
                problems[ascii(slide.name)] = not_text(slide)
            elif realpath(slide) not in map(realpath, by_name[slide_name(slide)]):
                by_name[slide_name(slide)].append(slide)
    if problems and not by_name:
        raise InputError(next(iter(problems.values())))
    refs, used, table = [], set(), table or {}
    for name, slides in sorted(by_name.items()):
        if len(slides) > 1:
            problems[name] = f"{name}: two slides have this name ({' and '.join(map(str, slides))}); rename one"
            continue
        key = next((key for key in map(composed, (str(slides[0]), slides[0].name, name)) if key in table), None)
        used.add(key)
        refs.append(SlideRef(slides[0], name, mpp if key is None else table[key]))
    unused = [name for name in table if name not in used]
    notes = [f"{len(unused)} rows of the mpp table name no slide here, e.g. {unused[0]}."] if unused else []
    return SlideListing(tuple(refs), problems, tuple(notes))


def _slides_in(folder: Path, leave_out: Path | None) -> Iterator[Path]:
    """Slides below a folder, without hidden files and the job folder."""
    by_folder: dict[Path, list[Path]] = defaultdict(list)
    for file in files_below(folder, leave_out, locked=[]):
        by_folder[file.parent].append(file)
    for parent, files in by_folder.items():
        series: dict[bytes, Path] = {}
        for file in files:
            if file.suffix.lower() == DICOM:
                series.setdefault(_series(file), file)
        # the folder where all its DICOM files are one series, else the first file of each series
        yield from [parent] if len(series) == 1 else series.values()
        yield from (file for file in files if file.suffix.lower() in SUFFIXES or (is_store(file) and is_image(file)))


def _series(file: Path) -> bytes:
    """Identifier of a DICOM file's series, or the file's name where there is none."""
    with file.open("rb") as handle:
        _, tag, rest = handle.read(2**16).partition(SERIES)
    return rest[2 : 2 + int.from_bytes(rest[:2], "little")] if tag else file.name.encode()

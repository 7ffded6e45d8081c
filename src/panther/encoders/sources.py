"""Sources of patches: a slide, or a folder of tile images. They are sent to worker processes and opened there."""

import warnings
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from panther.errors import InputError
from panther.slides.listing import SlideListing, SlideRef
from panther.storage.bags import files_below
from panther.storage.names import DICOM, SUFFIXES
from panther.types import PatchSpec

if TYPE_CHECKING:
    from panther.slides.stain import StainFit

TILE_SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".webp")
LARGEST_TILE = 2048  # pixels a side; a larger image is a slide, or a picture of one
TILE_WIDTH = 322  # TIFF tag of slides, which are stored in tiles


class OpenSource(Protocol):
    """An opened source."""

    def read(self, item: Any) -> np.ndarray:
        """Pixels (h, w, 3) uint8 of one patch; an InputError where it cannot be decoded."""

    def close(self) -> None:
        """Close the file."""


class Source(Protocol):
    """A slide or a folder of patches; workers compare sources, to keep one open."""

    def open(self) -> OpenSource:
        """Open it in this process."""


@dataclass(frozen=True)
class SlidePatches:
    """Patches of one slide; an item is (x, y) at level 0."""

    path: Path
    mpp: float | None  # override of the slide's resolution
    spec: PatchSpec
    stain: "StainFit | None" = None  # its stains, which are replaced by the reference's

    def open(self) -> "SlideReading":
        """Open the slide."""
        return SlideReading(self)

    def __str__(self) -> str:
        return self.path.name


class SlideReading:
    """A slide that stays open; a patch that cannot be decoded is read from the other levels."""

    def __init__(self, source: SlidePatches) -> None:
        self._source = source
        self._open()

    def read(self, item: Any) -> np.ndarray:
        """Pixels (size, size, 3) of the patch at (x, y), with the reference's stains where those of the slide are given."""
        from panther.slides.slide import fallback_levels

        x, y = int(item[0]), int(item[1])
        best, failures = self._patches.spec.level or 0, []
        for level in (best, *fallback_levels(self._slide, best)):
            try:
                pixels = self._patches.read(x, y, level)
                return pixels if self._source.stain is None else self._source.stain(pixels)
            except InputError as error:
                failures.append(error)
                self._slide.close()
                self._open()  # OpenSlide reads nothing more after a failure
        raise failures[0]

    def close(self) -> None:
        """Close the slide."""
        self._slide.close()

    def _open(self) -> None:
        from panther.slides import PatchReader, open_slide

        spec = self._source.spec
        self._slide = open_slide(self._source.path, self._source.mpp)
        if spec.level is None and spec.size and spec.size_level0:  # TRIDENT's files do not have it
            spec = replace(spec, level=self._slide.best_level(spec.size_level0 / spec.size))
        self._patches = PatchReader(self._slide, spec)


@dataclass(frozen=True)
class TileFolder:
    """Tile images of a folder; an item is the name of a file below it."""

    path: Path

    def open(self) -> "TileFolder":
        """The folder: tiles are opened one by one."""
        return self

    def read(self, item: Any) -> np.ndarray:
        """Pixels (h, w, 3)."""
        from PIL import Image

        path = self.path / str(item)
        try:
            with Image.open(path) as image:
                return np.asarray(image.convert("RGB"))
        except Exception as error:  # a broken image may raise anything
            first = (str(error).splitlines() or [type(error).__name__])[0]
            raise InputError(f"{path}: the tile cannot be decoded ({first})") from error

    def close(self) -> None:
        """Do nothing: no file is open."""

    def __str__(self) -> str:
        return self.path.name

    def names(self) -> list[str]:
        """All tiles, searched in depth, sorted; without hidden files."""
        tiles = (p for p in files_below(self.path) if p.suffix.lower() in TILE_SUFFIXES and p.is_file())
        names = sorted(p.relative_to(self.path).as_posix() for p in tiles)
        if not names:
            raise InputError(f"{self.path}: no tile images found, expected {', '.join(TILE_SUFFIXES)}")
        return names


def holds_tiles(folder: Path) -> bool:
    """Whether a folder holds tile images and no slides; a .tif may be either, so the first image is opened."""
    files = files_below(folder, locked=[])  # none where it is a file
    if any(file.suffix.lower() in {*SUFFIXES, DICOM} - {*TILE_SUFFIXES} for file in files):
        return False
    images = [file for file in files if file.suffix.lower() in TILE_SUFFIXES]
    images = [file for file in images if file.suffix.lower() in SUFFIXES] or images  # slides may have thumbnails
    checks = (_is_tile(image) for image in images[:10])  # a broken image is reported where it is read
    return next((is_tile for is_tile in checks if is_tile is not None), False)


def _is_tile(path: Path) -> bool | None:
    """Whether an image is a small and plain one; None where it cannot be read."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(path) as image:
                pyramid = getattr(image, "n_frames", 1) > 1 or TILE_WIDTH in getattr(image, "tag_v2", {})
                return max(image.size) <= LARGEST_TILE and not pyramid
    except Image.DecompressionBombError:
        return False
    except Exception:  # a broken image may raise anything
        return None


def list_tile_folders(paths: Iterable[Path]) -> SlideListing | None:
    """Bags of folders of tile images: one per sub-folder, or one of a folder without any; None where a path holds no tiles."""
    paths = list(paths)
    if not all(map(holds_tiles, paths)):
        return None
    by_name: dict[str, list[Path]] = defaultdict(list)
    for path in paths:
        names = TileFolder(path).names()
        folders = sorted({name.split("/")[0] for name in names if "/" in name})
        loose = [name for name in names if "/" not in name]
        if folders and loose:
            example = f"{len(loose)} images, e.g. {loose[0]}, and folders of images"
            raise InputError(f"{path}: found {example}, expected one folder for each bag")
        for folder in [path / name for name in folders] or [path]:
            by_name[folder.resolve().name].append(folder)
    refs = tuple(SlideRef(paths[0], name) for name, paths in sorted(by_name.items()) if len(paths) == 1)
    problems = {
        name: f"{name}: two folders have this name ({' and '.join(map(str, paths))}); rename one"
        for name, paths in by_name.items()
        if len(paths) > 1
    }
    return SlideListing(refs, problems)

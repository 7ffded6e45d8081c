"""What all pages share: the contents of the folders, and what was opened or computed last, bounded in number and in bytes."""

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from panther.engine import HERE, Work, map_all
from panther.errors import InputError
from panther.explain.scene import MapSettings
from panther.slides import Slide, open_slide
from panther.store import Version, version_of
from panther.types import Prototypes
from panther.viewer.contents import Contents, SlideEntry, load_set
from panther.viewer.kept import Kept
from panther.viewer.names import NEW, NamesBook, NamesNow, look
from panther.viewer.patches import PatchMap, read_patches, recorded_mpp

OPEN_SLIDES = 8  # images kept open; each may keep 128 MiB of decoded tiles
MAPS = 256 << 20  # bytes of patches kept: 15,000 patches and 16 prototypes are a megabyte
SETS = 8  # of prototypes
SHARED = 8  # things that several pages look at
RESOLUTIONS = 100_000  # slides whose resolution, a number, is kept
PATIENCE = 30.0  # seconds that one waits for a slide that another reads

T = TypeVar("T")


class UnknownError(InputError):
    """The requested item does not exist."""


class Workbench:
    """Contents, with slides and patches opened on first use. Threads may share it.

    ``executor`` does what a page waits for; ``long_executor`` what takes seconds, such as a search over the cohort, so that the
    one never waits for the other.
    """

    def __init__(
        self,
        contents: Contents,
        settings: MapSettings | None = None,
        executor: Executor | None = None,
        long_executor: Executor | None = None,
    ) -> None:
        self.contents = contents
        self.settings = settings or MapSettings()
        self.work = HERE if executor is None else Work(executor)
        self.long_work = self.work if long_executor is None else Work(long_executor)
        self._prototypes: Kept[Prototypes] = Kept(SETS)
        self._names: Kept[NamesBook] = Kept(1)
        self._patches: Kept[PatchMap] = Kept(MAPS, weigh=_bytes)
        self._resolutions: Kept[float | None] = Kept(RESOLUTIONS)
        self.shared: Kept[Any] = Kept(SHARED)  # what several pages look at, by names of their own
        self._images: Kept[_OpenSlide] = Kept(OPEN_SLIDES, lambda one: one.close())

    def slide(self, name: str) -> SlideEntry:
        """Entry of a slide; whatever is not in the contents is refused, so that a request cannot name a path."""
        return _known(self.contents.slides, name, "slide")

    def set_name(self, name: str | None = None) -> str:
        """Name of a set of prototypes, the first one by default."""
        if not self.contents.prototypes:
            raise UnknownError(
                "There are no prototypes here; fit some with `panther prototypes`, or open one (`panther view FOLDER --prototypes FILE`)."
            )
        name = name or next(iter(self.contents.prototypes))
        _known(self.contents.prototypes, name, "set of prototypes")
        return name

    def prototypes(self, name: str | None = None) -> Prototypes:
        """A set of prototypes by its name; the first one by default."""
        name = self.set_name(name)
        path = self.contents.prototypes[name]
        return self._prototypes.get(name, lambda: load_set(path), version_of([path]))

    def version(self, name: str, prototypes: str | None = None) -> Version:
        """Changes where a file of this slide, or the set of prototypes, does: part of the key of whatever is kept of them."""
        sets = [self.contents.prototypes[self.set_name(prototypes)]] if self.contents.prototypes else []
        return version_of((*self.slide(name).files, *sets))

    def patches(self, name: str, prototypes: str | None = None) -> PatchMap:
        """Where a slide's patches lie and which prototypes they belong to; the features are read in a worker process."""
        entry = self.slide(name)
        version = self.version(name, prototypes)
        chosen = self.prototypes(prototypes) if self.contents.prototypes else None
        key = name, prototypes or next(iter(self.contents.prototypes), None)

        def read() -> PatchMap:
            self.refuse_links(entry.files)
            return self.compute(read_patches, entry, chosen, self.settings)

        return self._patches.get(key, read, version)

    def look(self, name: str | None = None) -> list[tuple[str, str]]:
        """Title and colour (#RRGGBB) of every prototype of a set, as the names file has them now."""
        count = len(self.prototypes(name))
        now = self.names().now() if self.has_names(name) else NamesNow(NEW, {})
        return look(now, count)

    def names(self) -> NamesBook:
        """The names file, which belongs to the first set of prototypes."""
        count, path = len(self.prototypes()), self.contents.names
        return self._names.get(None, lambda: NamesBook(path, count, lambda: self.refuse_links([path])), count)

    def has_names(self, name: str | None = None) -> bool:
        """Whether the names file tells of this set."""
        return name is None or name == next(iter(self.contents.prototypes), None)

    @contextmanager
    def image(self, name: str) -> Iterator[Slide]:
        """Image of a slide, opened if need be; other threads wait while one reads, because readers need not be safe."""
        entry = self.slide(name)
        if entry.image is None:
            raise UnknownError(f"{name}: there is no image of this slide.")
        version = version_of([entry.image])
        if None in version:
            self._images.drop(name)
            raise InputError(f"{entry.image}: the slide is not there any more; put it back, or start the viewer again.")
        one = self._images.get(name, lambda: self._opened(entry), version)
        try:
            with one.turn() as is_open:
                if is_open:
                    yield one.slide
                    return
            with self._opened(entry).slide as slide:  # forgotten before its turn came
                yield slide
        except UnknownError:
            raise
        except InputError:
            self._images.drop(name)  # damaged or gone: the next one looks again
            raise

    def compute(self, function: Callable[..., T], *arguments: Any) -> T:
        """Result of a function of pickles, in a worker process where there are any: a damaged file costs the request, not the server."""
        return map_all(partial(_call, function), [arguments], "", self.work)[0]

    def compute_long(self, function: Callable[..., T], *arguments: Any) -> T:
        """The same for what takes long: whoever turns a page meanwhile does not wait for it."""
        return map_all(partial(_call, function), [arguments], "", self.long_work)[0]

    def close(self) -> None:
        """Close all slides."""
        self._images.clear()

    def _opened(self, entry: SlideEntry) -> "_OpenSlide":
        """Open an image that a worker process has opened before: one that crashes its library does so there."""
        assert entry.image is not None
        self.refuse_links([entry.image])
        mpp = self._resolutions.get(
            entry.name, lambda: self.compute(prove_image, entry, self.settings), version_of(entry.files)
        )
        return _OpenSlide(open_slide(entry.image, mpp))

    def refuse_links(self, files: Iterable[Path]) -> None:
        """Look again where links lead: a file may have become one since the folders were searched."""
        roots = self.contents.roots
        for file in files:
            if roots is not None and not roots.hold(file):
                raise InputError(
                    f"{file.name}: this is a link out of the opened folders, which are all that may be read."
                )


def prove_image(entry: SlideEntry, settings: MapSettings) -> float | None:
    """Open an image and read a part of its smallest level, in a worker process; returns the resolution to open it with."""
    assert entry.image is not None
    try:
        recorded = recorded_mpp(entry)
    except (InputError, OSError):
        recorded = None  # damaged features are no reason not to show the image
    mpp = settings.resolution(entry.image, recorded)
    with open_slide(entry.image, mpp) as slide:
        level = len(slide.level_dimensions) - 1
        width, height = slide.level_dimensions[level]
        slide.read_level(0, 0, level, min(width, 256), min(height, 256))
    return mpp


class _OpenSlide:
    """A slide and the lock of its reader."""

    def __init__(self, slide: Slide) -> None:
        self.slide = slide
        self.forgotten = False
        self._lock, self._readers, self._closed = threading.RLock(), 0, False

    @contextmanager
    def turn(self) -> Iterator[bool]:
        """Wait for one's turn; False where the slide was closed meanwhile."""
        if not self._lock.acquire(timeout=PATIENCE):
            raise InputError(f"{self.slide.path}: its storage does not answer; try again later.")
        self._readers += 1
        try:
            yield not self._closed
        finally:
            self._readers -= 1
            self._lock.release()
            if self.forgotten:
                self.close()

    def close(self) -> None:
        """Close it now or, during a read, leave it to that reader: no request waits for another slide."""
        self.forgotten = True
        if self._lock.acquire(blocking=False):
            try:
                if not self._readers and not self._closed:
                    self._closed = True
                    self.slide.close()
            finally:
                self._lock.release()


def _bytes(patches: PatchMap) -> int:
    placed = () if patches.grid is None else (patches.grid.cells, patches.grid.layer)
    return 1024 + sum(array.nbytes for array in (*placed, patches.assignment, patches.weights) if array is not None)


def _call(function: Callable[..., T], arguments: tuple[Any, ...]) -> T:
    return function(*arguments)


def _known(known: Any, name: str, what: str) -> Any:
    if name not in known:
        raise UnknownError(f"There is no {what} {name!r} here.")
    return known[name]

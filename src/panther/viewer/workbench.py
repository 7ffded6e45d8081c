"""Contents of the opened folders, shared by all pages, with a bounded cache of what was opened or computed last."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, Generic, TypeVar
from weakref import finalize

from panther.engine import LOCAL, Work, map_all, name_of
from panther.errors import InputError
from panther.explain.scene import MapSettings
from panther.slides import Slide, open_slide
from panther.store import Version, version_of
from panther.types import Prototypes
from panther.viewer.contents import Contents, SlideEntry, load_set
from panther.viewer.names import NamesBook, NamesState, legend
from panther.viewer.patches import PatchMap, read_patches, recorded_mpp

OPEN_SLIDES = 8  # images kept open; each may keep 128 MiB of decoded tiles
MAPS = 256 << 20  # bytes of patches kept: 15,000 patches and 16 prototypes are a megabyte
SETS = 8  # of prototypes
RESOLUTIONS = 100_000  # slides whose resolution, a number, is kept
PATIENCE = 30.0  # seconds to wait for a slide that another request reads

T = TypeVar("T")


class UnknownError(InputError):
    """The requested item does not exist."""


class BusyError(InputError):
    """Too many searches at a time."""


class InProgressError(Exception):
    """The answer is still being computed in the background; the page shows the progress and tries again."""

    def __init__(self, done: int, total: int, what: str) -> None:
        super().__init__(what)
        self.progress = {"done": done, "total": total, "what": what}


@dataclass(eq=False)
class _Entry(Generic[T]):
    version: Hashable
    value: Future[T] = field(default_factory=Future)
    weight: int = 0  # set with the value


class LruCache(Generic[T]):
    """The values used last, each computed once for any number of threads.

    ``limit`` bounds the sum of their weights, 1 each by default; the newest value is kept even if it is heavier.
    """

    def __init__(self, limit: int, weigh: Callable[[T], int] = lambda value: 1) -> None:
        self._limit, self._weigh = limit, weigh
        self._entries: OrderedDict[Hashable, _Entry[T]] = OrderedDict()
        self._weight = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Hashable, make: Callable[[], T], version: Hashable = None) -> T:
        """Value of ``key``, computed if it is not there, or of another ``version`` (of the files behind it).

        Threads that request it meanwhile wait for the value or its error. Errors are not kept.
        """
        with self._lock:
            entry = self._entries.get(key)
            is_new = entry is None or entry.version != version
            if entry is None or is_new:
                self._remove(key)
                entry = self._entries[key] = _Entry(version)
            self._entries.move_to_end(key)
        if is_new:
            self._fill(key, entry, make)
        return entry.value.result()

    def drop(self, key: Hashable) -> None:
        """Forget one value."""
        with self._lock:
            self._remove(key)

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._entries.clear()
            self._weight = 0

    def _fill(self, key: Hashable, entry: _Entry[T], make: Callable[[], T]) -> None:
        try:
            value = make()
        except BaseException as error:
            with self._lock:
                if self._entries.get(key) is entry:
                    self._remove(key)
            entry.value.set_exception(error)
            return
        with self._lock:
            if self._entries.get(key) is entry:
                entry.weight = self._weigh(value)
                self._weight += entry.weight
                self._entries.move_to_end(key)
                while self._weight > self._limit and len(self._entries) > 1:
                    self._remove(next(iter(self._entries)))
        entry.value.set_result(value)

    def _remove(self, key: Hashable) -> None:
        entry = self._entries.pop(key, None)
        self._weight -= entry.weight if entry else 0


class _OpenSlide:
    """A slide and the lock of its reader; the slide is closed when neither the cache nor a request holds this any more."""

    def __init__(self, slide: Slide) -> None:
        self.slide, self.lock = slide, threading.RLock()
        finalize(self, slide.close)


class Workbench:
    """Contents, with slides and patches opened on first use. Threads may share it.

    ``executor`` runs what a page waits for; ``long_executor`` what takes seconds, such as a search over the cohort, so that
    neither waits for the other.
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
        self.work = LOCAL if executor is None else Work(executor)
        self.long_work = self.work if long_executor is None else Work(long_executor)
        self.shared: LruCache[Any] = LruCache(SETS)  # galleries of prototypes, used by several pages
        self._prototypes: LruCache[Prototypes] = LruCache(SETS)
        self._names: LruCache[NamesBook] = LruCache(1)
        self._patches: LruCache[PatchMap] = LruCache(MAPS, weigh=_bytes)
        self._resolutions: LruCache[float | None] = LruCache(RESOLUTIONS)
        self._images: LruCache[_OpenSlide] = LruCache(OPEN_SLIDES)

    def slide(self, name: str) -> SlideEntry:
        """Entry of a slide; names that are not in the contents are refused, so a request cannot name a path."""
        return pick(self.contents.slides, name, "slide")

    def set_name(self, name: str | None = None) -> str:
        """Name of a set of prototypes, the first one by default."""
        sets = self.contents.prototypes
        if not sets:
            raise UnknownError("no prototypes here; `panther prototypes` fits some, `panther view -p FILE` opens them")
        name = name or next(iter(sets))
        pick(sets, name, "set of prototypes")
        return name

    def prototypes(self, name: str | None = None) -> Prototypes:
        """A set of prototypes by its name; the first one by default."""
        name = self.set_name(name)
        path = self.contents.prototypes[name]
        return self._prototypes.get(name, lambda: load_set(path), version_of([path]))

    def version(self, name: str, prototypes: str | None = None) -> Version:
        """Version of the files of a slide and of the prototypes, for everything cached of them."""
        sets = [self.contents.prototypes[self.set_name(prototypes)]] if self.contents.prototypes else []
        return version_of((*self.slide(name).files, *sets))

    def patches(self, name: str, prototypes: str | None = None) -> PatchMap:
        """Positions of a slide's patches and their prototypes; the features are read in a worker process."""
        entry = self.slide(name)
        version = self.version(name, prototypes)
        chosen = self.prototypes(prototypes) if self.contents.prototypes else None
        key = name, prototypes or next(iter(self.contents.prototypes), None)

        def read() -> PatchMap:
            self.refuse_links(entry.files)
            return self.compute(read_patches, entry, chosen, self.settings)

        return self._patches.get(key, read, version)

    def legend(self, name: str | None = None) -> list[tuple[str, str]]:
        """Title and colour (#RRGGBB) of every prototype of a set, from the names file."""
        return legend(self.names().state() if self.has_names(name) else NamesState({}), len(self.prototypes(name)))

    def names(self) -> NamesBook:
        """The names file, which belongs to the first set of prototypes."""
        count, path = len(self.prototypes()), self.contents.names
        return self._names.get(None, lambda: NamesBook(path, count, lambda: self.refuse_links([path])), count)

    def has_names(self, name: str | None = None) -> bool:
        """Whether the names file belongs to this set."""
        return name is None or name == next(iter(self.contents.prototypes), None)

    @contextmanager
    def image(self, name: str) -> Iterator[Slide]:
        """Image of a slide, opened on first use; one thread at a time, because readers need not be thread-safe."""
        entry = self.slide(name)
        if entry.image is None:
            raise UnknownError(f"{name}: no image of this slide")
        version = version_of([entry.image])
        if None in version:
            self._images.drop(name)
            raise InputError(f"{entry.image}: the slide is not there any more")
        opened = self._images.get(name, partial(self._open, entry, entry.image), version)
        if not opened.lock.acquire(timeout=PATIENCE):
            raise InputError(f"{entry.image}: its storage does not respond; try again later")
        try:
            yield opened.slide
        except UnknownError:
            raise
        except InputError:
            self._images.drop(name)  # damaged or gone: the next request opens it again
            raise
        finally:
            opened.lock.release()

    def compute(self, function: Callable[..., T], *arguments: Any, is_long: bool = False) -> T:
        """Result of a picklable function, in a worker process if there are any: a damaged file fails the request, not the server.

        What ``is_long`` runs in processes of its own, so that requests of other pages do not wait for it.
        """
        return map_all(partial(_call, function), [arguments], "", self.long_work if is_long else self.work)[0]

    def close(self) -> None:
        """Close all slides."""
        self._images.clear()

    def _open(self, entry: SlideEntry, image: Path) -> _OpenSlide:
        """Open an image after a worker process has: a file that crashes its library does so there."""
        self.refuse_links([image])
        check = partial(self.compute, check_image, entry, self.settings)
        return _OpenSlide(open_slide(image, self._resolutions.get(entry.name, check, version_of(entry.files))))

    def refuse_links(self, files: Iterable[Path]) -> None:
        """Refuse links out of the opened folders: a file may have been replaced by one since the search."""
        roots = self.contents.roots
        for file in files:
            if roots is not None and not roots.hold(file):
                raise InputError(f"{file.name}: a link out of the opened folders")

    def readable(
        self, items: Iterable[T], files: Callable[[T], Iterable[Path]] = attrgetter("files")
    ) -> tuple[list[T], dict[str, str]]:
        """Items with files in the opened folders, and the reasons against the others by their names."""
        inside, refused = [], {}
        for item in items:
            try:
                self.refuse_links(files(item))
                inside.append(item)
            except InputError as error:
                refused[name_of(item)] = str(error)
        return inside, refused


def check_image(entry: SlideEntry, settings: MapSettings) -> float | None:
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


def pick(choices: Any, name: str, what: str) -> Any:
    """The choice of that name, of a mapping or a list; others are refused."""
    if name not in choices:
        raise UnknownError(f"there is no {what} {name!r} here")
    return choices[name] if isinstance(choices, Mapping) else name


def as_sentence(text: str) -> str:
    """A message as the page shows it: with a capital, unless it begins with a file or a parameter, and a full stop."""
    first = text.partition(" ")[0]
    return f"{text if ':' in first else text[:1].upper() + text[1:]}".rstrip(".") + "."


def _bytes(patches: PatchMap) -> int:
    placed = () if patches.grid is None else (patches.grid.cells, patches.grid.layer)
    return 1024 + sum(array.nbytes for array in (*placed, patches.assignment, patches.weights) if array is not None)


def _call(function: Callable[..., T], arguments: tuple[Any, ...]) -> T:
    return function(*arguments)

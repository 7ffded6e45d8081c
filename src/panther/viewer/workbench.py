"""What all pages share: the contents of the folders, and what was opened or computed last, bounded in number."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from functools import partial
from typing import Any, Generic, TypeVar

from panther.errors import InputError
from panther.execution import HERE, Work, map_all
from panther.explain.scene import MapSettings
from panther.slides import Slide, open_slide
from panther.storage.prototypes import load_prototypes
from panther.types import Prototypes
from panther.viewer.contents import Contents, SlideEntry
from panther.viewer.names import NEW, NamesBook, NamesNow, look
from panther.viewer.patches import PatchMap, read_patches, recorded_mpp

OPEN_SLIDES = 16  # images kept open
MAPS = 32  # slides whose patches are kept: 15,000 patches and 16 prototypes are a megabyte

RESOLUTIONS = 100_000  # slides whose resolution, a number, is kept

T = TypeVar("T")


class UnknownError(InputError):
    """The browser asked for something that is not there."""


class Kept(Generic[T]):
    """The last few values, each made once however many ask for it at the same time."""

    def __init__(self, most: int, forget: Callable[[T], None] = lambda value: None) -> None:
        self._most, self._forget = most, forget
        self._values: OrderedDict[Hashable, T] = OrderedDict()
        self._locks: dict[Hashable, threading.Lock] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Value of ``key``, made where it is not kept; what fails is not kept."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
            making = self._locks.setdefault(key, threading.Lock())
        with making:
            with self._lock:
                if key in self._values:
                    return self._values[key]
            value = make()
            with self._lock:
                self._values[key] = value
                self._locks.pop(key, None)
                over = [self._values.popitem(last=False)[1] for _ in range(len(self._values) - self._most)]
        for one in over:
            self._forget(one)
        return value

    def drop(self, key: Hashable) -> None:
        """Forget one value."""
        with self._lock:
            value = self._values.pop(key, None)
        if value is not None:
            self._forget(value)


class Workbench:
    """Contents, with slides and patches opened when they are asked for. Threads may share it."""

    def __init__(
        self, contents: Contents, settings: MapSettings | None = None, executor: Executor | None = None
    ) -> None:
        self.contents = contents
        self.settings = settings or MapSettings()
        self.work = HERE if executor is None else Work(executor)
        self._prototypes: Kept[Prototypes] = Kept(8)
        self._names: Kept[NamesBook] = Kept(1)
        self._patches: Kept[PatchMap] = Kept(MAPS)
        self._resolutions: Kept[float | None] = Kept(RESOLUTIONS)
        self._images: Kept[_OpenSlide] = Kept(OPEN_SLIDES, lambda one: one.close())

    def slide(self, name: str) -> SlideEntry:
        """Entry of a slide; whatever is not in the contents is refused, so that no path can be asked for."""
        return _known(self.contents.slides, name, "slide")

    def prototypes(self, name: str | None = None) -> Prototypes:
        """A set of prototypes by its name; the first one by default."""
        if not self.contents.prototypes:
            raise UnknownError(
                "There are no prototypes here; fit some with `panther prototypes`, or give --prototypes."
            )
        name = name or next(iter(self.contents.prototypes))
        path = _known(self.contents.prototypes, name, "set of prototypes")
        return self._prototypes.get(name, lambda: load_prototypes(path))

    def patches(self, name: str, prototypes: str | None = None) -> PatchMap:
        """Where a slide's patches lie and which prototypes they belong to; the features are read in a worker process."""
        entry = self.slide(name)
        chosen = self.prototypes(prototypes) if self.contents.prototypes else None
        key = name, prototypes or next(iter(self.contents.prototypes), None)
        return self._patches.get(key, lambda: self.compute(read_patches, entry, chosen, self.settings))

    def look(self, name: str | None = None) -> list[tuple[str, str]]:
        """Title and colour (#RRGGBB) of every prototype of a set, as the names file has them now."""
        count = len(self.prototypes(name))
        now = self.names().now() if self.has_names(name) else NamesNow(NEW, {})
        return look(now, count)

    def names(self) -> NamesBook:
        """The names file, which belongs to the first set of prototypes."""
        return self._names.get(None, lambda: NamesBook(self.contents.names, len(self.prototypes())))

    def has_names(self, name: str | None = None) -> bool:
        """Whether the names file tells of this set."""
        return name is None or name == next(iter(self.contents.prototypes), None)

    @contextmanager
    def image(self, name: str) -> Iterator[Slide]:
        """Image of a slide, opened if need be; other threads wait while one reads, because readers need not be safe."""
        entry = self.slide(name)
        if entry.image is None:
            raise UnknownError(f"{name}: there is no image of this slide.")
        path = entry.image
        mpp = self._resolutions.get(name, lambda: self.settings.resolution(path, self.compute(recorded_mpp, entry)))
        one = self._images.get(name, lambda: _OpenSlide(open_slide(path, mpp)))
        with one.lock:
            if one.closed:  # forgotten between the two lines above
                with open_slide(path, mpp) as slide:
                    yield slide
                return
            try:
                yield one.slide
            except InputError:
                self._images.drop(name)  # damaged or gone: the next one looks again
                raise

    def compute(self, function: Callable[..., T], *arguments: Any) -> T:
        """Result of a function of pickles, in a worker process where there are any: a damaged file costs the request, not the server."""
        return map_all(partial(_call, function), [arguments], "", self.work)[0]


class _OpenSlide:
    def __init__(self, slide: Slide) -> None:
        self.slide, self.lock, self.closed = slide, threading.RLock(), False

    def close(self) -> None:
        with self.lock:
            self.closed = True
            self.slide.close()


def _call(function: Callable[..., T], arguments: tuple[Any, ...]) -> T:
    return function(*arguments)


def _known(known: Any, name: str, what: str) -> Any:
    if name not in known:
        raise UnknownError(f"There is no {what} {name!r} here.")
    return known[name]

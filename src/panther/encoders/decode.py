"""Patches are decoded by worker processes, a few batches ahead, into memory that they share with this process."""

import ctypes
import logging
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import BrokenExecutor, Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np

from panther.encoders.images import Preprocess
from panther.encoders.sources import OpenSource, Source
from panther.engine import ProcessPool, WorkerLostError
from panther.errors import InputError
from panther.machine import cores, process_context

logger = logging.getLogger(__name__)

CHUNK = 16  # patches per task
PRELOAD = ("panther.encoders.decode", "panther.slides")


@dataclass(frozen=True)
class Batch:
    """Decoded patches. The pixels are overwritten when the second next batch is asked for."""

    index: int
    pixels: np.ndarray  # (n, size, size, 3) uint8; zero where a patch failed
    failed: dict[int, str] = field(default_factory=dict)  # position in the batch -> why


@dataclass
class PatchBuffer:
    """The memory that patches are decoded into, and the source that is open; one per process."""

    pixels: np.ndarray  # (rows, size, size, 3)
    fit: Preprocess
    source: Source | None = None
    reading: OpenSource | None = None

    def decode(self, source: Source, items: Sequence[Any] | np.ndarray, row: int) -> dict[int, str]:
        """Decode ``items`` into the rows from ``row`` on; the reasons of those that failed."""
        failed = {}
        for offset, item in enumerate(items):
            try:
                self.pixels[row + offset] = self.fit(self.opened(source).read(item))
            except InputError as error:
                self.pixels[row + offset] = 0
                failed[offset] = str(error)
        return failed

    def opened(self, source: Source) -> OpenSource:
        """Open the source, or use it again."""
        if self.reading is None or source != self.source:
            self.close()
            self.reading, self.source = source.open(), source
        return self.reading

    def close(self) -> None:
        """Close the source."""
        if self.reading is not None:
            self.reading.close()
            self.reading = self.source = None


class Decoder:
    """Worker processes and the ring of batches that they fill; used for one slide after the other.

    ``workers``: 0 is one per core, 1 decodes in this process. Batches have fixed boundaries: batch i holds the items
    i * batch to (i + 1) * batch, whatever was decoded before. In worker processes (``guarded``: even where it is only one) a slide that
    crashes the library that reads it fails alone.
    """

    def __init__(self, fit: Preprocess, batch: int, workers: int = 0, *, guarded: bool = False, ahead: int = 3) -> None:
        if workers < 0 or batch < 1:
            raise InputError(f"`workers={workers}` and `batch={batch}` make no sense; give 0 or more, and 1 or more.")
        workers = workers or cores()
        self.batch = batch
        apart = guarded or workers > 1
        self._slots = ahead + 2 if apart else 2  # two batches are with the encoder
        rows = self._slots * batch
        context = process_context(*PRELOAD)
        # an unlinked file in /dev/shm, or in the temporary folder where that is small (containers): gone with the process
        self._memory = context.RawArray(ctypes.c_uint8, rows * fit.size * fit.size * 3)
        self._canvas = _canvas(self._memory, fit)
        self._pool: _Here | ProcessPool = _Here(self._canvas)
        if apart:
            self._pool = ProcessPool(workers, _begin, (self._memory, fit), PRELOAD)

    @property
    def pixels(self) -> np.ndarray:
        """The whole ring (rows, size, size, 3), e.g. to pin it."""
        return self._canvas.pixels

    def check(self, slide: Path, mpp: float | None) -> None:
        """Open a slide in a worker before this process does: a damaged one may crash the library that reads it."""
        try:
            self._pool.result(self._pool.schedule(_check, slide, mpp))
        except WorkerLostError as error:
            raise InputError(f"{slide.name}: {error}") from error

    def batches(self, source: Source, items: Sequence[Any] | np.ndarray, first: int = 0) -> Iterator[Batch]:
        """Decode ``items`` in order, from batch ``first`` on."""
        numbers = range(first, -(-len(items) // self.batch))
        waiting: deque[tuple[int, list[tuple[int, Future[dict[int, str]]]]]] = deque()
        upcoming = iter(numbers)
        try:
            for number in numbers:
                while len(waiting) < max(self._slots - 1, 1) and (index := next(upcoming, None)) is not None:
                    waiting.append((index, self._submit(source, items, index)))
                index, tasks = waiting.popleft()
                failed = {
                    start + offset: why for start, task in tasks for offset, why in self._pool.result(task).items()
                }
                count = len(items[number * self.batch : (number + 1) * self.batch])
                row = self._row(index)
                yield Batch(index, self.pixels[row : row + count], failed)
        except WorkerLostError as error:
            raise InputError(f"{source}: {error}") from error
        except BrokenExecutor as error:
            raise InputError(f"processes that decode patches cannot be started, or were killed ({error})") from error
        finally:
            for _, tasks in waiting:
                for _, task in tasks:
                    task.cancel()

    def _submit(
        self, source: Source, items: Sequence[Any] | np.ndarray, index: int
    ) -> list[tuple[int, "Future[dict[int, str]]"]]:
        part, row = items[index * self.batch : (index + 1) * self.batch], self._row(index)
        starts = range(0, len(part), CHUNK)
        return [(at, self._pool.schedule(_decode, source, part[at : at + CHUNK], row + at)) for at in starts]

    def _row(self, index: int) -> int:
        return index % self._slots * self.batch

    def close(self) -> None:
        """End the workers."""
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _canvas(memory: Any, fit: Preprocess) -> PatchBuffer:
    return PatchBuffer(np.frombuffer(memory, np.uint8).reshape(-1, fit.size, fit.size, 3), fit)


class _Here:
    """Decodes in this process, on the canvas of the decoder."""

    def __init__(self, canvas: PatchBuffer) -> None:
        self._canvas = canvas

    def schedule(self, function: Any, *arguments: Any) -> "Future[Any]":
        """Do it now."""
        done: Future[Any] = Future()
        _HERE[:] = [self._canvas]
        done.set_result(function(*arguments))
        return done

    def result(self, future: "Future[Any]") -> Any:
        """Return it."""
        return future.result()

    def close(self) -> None:
        """Close the source."""
        self._canvas.close()


_HERE: list[PatchBuffer] = []  # in a worker process: its canvas, made when the process begins


def _begin(memory: Any, fit: Preprocess) -> None:
    _HERE[:] = [_canvas(memory, fit)]


def _decode(source: Source, items: Sequence[Any] | np.ndarray, row: int) -> dict[int, str]:
    return _HERE[0].decode(source, items, row)


def _check(slide: Path, mpp: float | None) -> None:
    from panther.slides import open_slide

    open_slide(slide, mpp).close()

"""Decode and encode side by side, batch by batch.

Worker processes decode patches, a few batches ahead, into memory that they share with this process; copies from it to a GPU do not block.
"""

import ctypes
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Future
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self, TypeVar

import numpy as np
import torch

from panther.encoders._base import PER_CORE, Encoder, Preprocess, Started
from panther.encoders.sources import OpenSource, Source
from panther.engine import ProcessPool, WorkerLostError
from panther.errors import InputError, check_choice, note
from panther.machine import cores, process_context

R = TypeVar("R")

DTYPES: dict[str, np.dtype] = {"float16": np.dtype(np.float16), "float32": np.dtype(np.float32)}
BATCH = {"cuda": 256, "cpu": max(8, PER_CORE * cores())}
CHUNK = 16  # patches per task
PRELOAD = ("panther.encoders.pipeline", "panther.slides")


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
        """Decode ``items`` into the rows from ``row`` on; the reasons of those that failed. The source stays open for the next ones."""
        if self.reading is None or source != self.source:
            self.close()
            self.reading, self.source = source.open(), source
        failed = {}
        for offset, item in enumerate(items):
            try:
                self.pixels[row + offset] = self.fit(self.reading.read(item))
            except InputError as error:
                self.pixels[row + offset] = 0
                failed[offset] = str(error)
        return failed

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
            raise InputError(f"found `workers={workers}` and `batch={batch}`, expected at least 0 and at least 1")
        workers = workers or cores()
        self.batch = batch
        apart = guarded or workers > 1
        self._slots = ahead + 2 if apart else 2  # two batches are with the encoder
        rows = self._slots * batch
        context = process_context(*PRELOAD)
        # an unlinked file in /dev/shm, or in the temporary folder where that is small (containers): gone with the process
        self._memory = context.RawArray(ctypes.c_uint8, rows * fit.size * fit.size * 3)
        self._canvas = _canvas(self._memory, fit)
        self._pool = ProcessPool(workers, _begin, (self._memory, fit), PRELOAD) if apart else None

    @property
    def pixels(self) -> np.ndarray:
        """The whole ring (rows, size, size, 3), e.g. to pin it."""
        return self._canvas.pixels

    def call(self, source: Source, function: Callable[..., R], *arguments: Any) -> R:
        """Value of ``function(source, *arguments)``, in a worker where there are any: a damaged slide may crash the library that reads it."""
        if self._pool is None:
            return function(source, *arguments)
        return self._result(source, self._pool.schedule(function, source, *arguments))

    def _result(self, source: Source, task: "Future[R]") -> R:
        try:
            return task.result() if self._pool is None else self._pool.result(task)
        except WorkerLostError as error:
            raise InputError(f"{source}: {error}") from error
        except BrokenExecutor as error:
            raise InputError(f"processes that decode patches cannot be started, or were killed ({error})") from error

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
                results = ((start, self._result(source, task)) for start, task in tasks)
                failed = {start + offset: why for start, result in results for offset, why in result.items()}
                count = len(items[number * self.batch : (number + 1) * self.batch])
                row = index % self._slots * self.batch
                yield Batch(index, self.pixels[row : row + count], failed)
        finally:
            for _, tasks in waiting:
                for _, task in tasks:
                    task.cancel()

    def _submit(
        self, source: Source, items: Sequence[Any] | np.ndarray, index: int
    ) -> list[tuple[int, "Future[dict[int, str]]"]]:
        part, row = items[index * self.batch : (index + 1) * self.batch], index % self._slots * self.batch
        tasks = []
        for at in range(0, len(part), CHUNK):
            arguments = (source, part[at : at + CHUNK], row + at)
            if self._pool is None:
                task: Future[dict[int, str]] = Future()
                task.set_result(self._canvas.decode(*arguments))
            else:
                task = self._pool.schedule(_decode, *arguments)
            tasks.append((at, task))
        return tasks

    def close(self) -> None:
        """End the workers, or close the source."""
        if self._pool is None:
            self._canvas.close()
        else:
            self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _canvas(memory: Any, fit: Preprocess) -> PatchBuffer:
    return PatchBuffer(np.frombuffer(memory, np.uint8).reshape(-1, fit.size, fit.size, 3), fit)


_CANVAS: list[PatchBuffer] = []  # of a worker process, made when it begins


def _begin(memory: Any, fit: Preprocess) -> None:
    _CANVAS[:] = [_canvas(memory, fit)]


def _decode(source: Source, items: Sequence[Any] | np.ndarray, row: int) -> dict[int, str]:
    return _CANVAS[0].decode(source, items, row)


@dataclass(frozen=True)
class ExtractSettings:
    """How patches become features."""

    batch: int = 0  # patches; 0: what suits the device
    workers: int = 0  # processes that decode; 0: one per core, 1: this process
    dtype: str = "float16"  # of the features that are written
    guarded: bool = False  # decode in another process even where it is one: a damaged slide cannot crash this one

    def __post_init__(self) -> None:
        check_choice("dtype", self.dtype, DTYPES)
        if self.batch < 0 or self.workers < 0:
            raise InputError(f"found `batch={self.batch}` and `workers={self.workers}`, expected at least 0")

    def batch_for(self, device: torch.device) -> int:
        """Patches per batch."""
        return self.batch or BATCH.get(device.type, BATCH["cuda"])


@dataclass(frozen=True)
class Throughput:
    """How long decoding and encoding waited for each other; of slides that go side by side the waiting adds up."""

    patches: int = 0  # encoded in this run
    seconds: float = 0.0
    decoding: float = 0.0  # seconds that the encoder waited for patches
    encoding: float = 0.0  # seconds that were spent on, or waiting for, the encoder
    writing: float = 0.0  # seconds that were spent on files

    def __add__(self, other: "Throughput") -> "Throughput":
        return Throughput(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))

    def __str__(self) -> str:
        if not self.patches:
            return "nothing to encode"
        waited = {"patches": self.decoding, "the encoder": self.encoding, "files": self.writing}
        shares = ", ".join(f"{part / max(sum(waited.values()), 1e-9):.0%} for {what}" for what, part in waited.items())
        return (
            f"{self.patches:,} patches in {self.seconds:.1f} s ({self.patches / max(self.seconds, 1e-9):.0f}/s); "
            f"time spent waiting: {shares}"
        )


@dataclass(frozen=True, eq=False)
class Encoded:
    """Features of all items of a source."""

    rows: np.ndarray  # (N, dim); zero where an item could not be decoded
    failed: dict[int, str] = field(default_factory=dict)  # position -> why
    throughput: Throughput = field(default_factory=Throughput)

    @property
    def kept(self) -> np.ndarray:
        """Whether an item could be decoded (N,)."""
        kept = np.ones(len(self.rows), bool)
        kept[list(self.failed)] = False
        return kept


class Pipeline:
    """One encoder on one device and the processes that decode for it; used for one slide after the other."""

    def __init__(self, encoder: Encoder, settings: ExtractSettings | None = None) -> None:
        self.encoder, self.settings = encoder, settings or ExtractSettings()
        self.batch = self.settings.batch_for(encoder.device)
        self.fit = Preprocess.of(encoder.about)
        self._decoder = Decoder(self.fit, self.batch, self.settings.workers, guarded=self.settings.guarded)
        # called with the patches of every batch that is kept
        self.on_progress: Callable[[int], None] = lambda patches: None
        self._pinned = encoder.device.type == "cuda" and _pin(self._decoder.pixels)

    @property
    def dtype(self) -> np.dtype:
        """Type of the features."""
        return DTYPES[self.settings.dtype]

    def call(self, source: Source, function: Callable[..., R], *arguments: Any) -> R:
        """Value of ``function(source, *arguments)``, computed where patches are decoded."""
        return self._decoder.call(source, function, *arguments)

    def run(self, source: Source, items: Sequence[Any] | np.ndarray) -> Encoded:
        """Encode all items; in bfloat16, from then on, where float16 overflows."""
        try:
            return self._run(source, items)
        except FloatingPointError as error:
            name, precision = self.encoder.about.name, self.encoder.precision
            if not self.encoder.falls_back or precision != "float16":
                raise InputError(f"encoder {name!r}: {error} in {precision}; try `precision=float32`") from error
            note(f"encoder {name!r}: {error} in float16; computing in bfloat16")
            self.encoder = self.encoder.in_bfloat16()
            return self._run(source, items)

    def _run(self, source: Source, items: Sequence[Any] | np.ndarray) -> Encoded:
        """Encode all items. Two batches are under way: one on the device, one being collected."""
        begin = time.perf_counter()
        made = Encoded(np.zeros((len(items), self.encoder.about.dim), self.dtype))
        decoding = encoding = 0.0
        before: tuple[Batch, Started] | None = None
        batches = self._decoder.batches(source, items)
        while True:
            clock = [time.perf_counter()]
            batch = next(batches, None)
            clock.append(time.perf_counter())
            started = None if batch is None else (batch, self.encoder.start(batch.pixels))
            rows = None if before is None else before[1].wait().numpy()
            clock.append(time.perf_counter())
            if before is not None and rows is not None:
                self._keep(before[0], rows, made)
            decoding, encoding = decoding + clock[1] - clock[0], encoding + clock[2] - clock[1]
            if started is None:
                break
            before = started
        return replace(made, throughput=Throughput(len(items), time.perf_counter() - begin, decoding, encoding))

    def _keep(self, batch: Batch, rows: np.ndarray, made: Encoded) -> None:
        good = np.ones(len(rows), bool)
        good[list(batch.failed)] = False
        if not np.isfinite(rows[good]).all():
            raise FloatingPointError("NaN or infinite features")
        first = batch.index * self.batch
        out = made.rows[first : first + len(rows)]
        with np.errstate(over="ignore"):
            out[good] = rows[good].astype(self.dtype)
        if not np.isfinite(out).all():
            raise InputError(f"features up to {np.abs(rows[good]).max():.3g} do not fit float16; use `dtype=float32`")
        made.failed.update({first + row: reason for row, reason in sorted(batch.failed.items())})
        self.on_progress(len(out))

    def close(self) -> None:
        """End the decoding processes."""
        if self._pinned:
            torch.cuda.synchronize(self.encoder.device)
            cudart: Any = torch.cuda.cudart()
            cudart.cudaHostUnregister(self._decoder.pixels.ctypes.data)
        self._decoder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _pin(pixels: np.ndarray) -> bool:
    """Pin the ring, so that copies to the GPU run beside everything else; without it they are slower, not wrong."""
    cudart: Any = torch.cuda.cudart()
    return int(cudart.cudaHostRegister(pixels.ctypes.data, pixels.nbytes, 0)) == 0

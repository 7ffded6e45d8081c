"""Decode and encode patches in parallel, batch by batch.

Worker processes decode patches a few batches ahead into shared memory; copies from it to a GPU do not block.
"""

import ctypes
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Future
from dataclasses import astuple, dataclass, field, replace
from typing import Any, Self, TypeVar

import numpy as np
import torch

from panther.encoders._base import PER_CORE, Encoder, Preprocess
from panther.encoders.sources import OpenSource, Source
from panther.engine import ProcessPool, WorkerLostError
from panther.errors import InputError, note
from panther.machine import cores, process_context

R = TypeVar("R")

DTYPES: dict[str, np.dtype] = {"float16": np.dtype(np.float16), "float32": np.dtype(np.float32)}
BATCH = {"cuda": 256, "cpu": max(8, PER_CORE * cores())}
CHUNK = 16  # patches per task
AHEAD = 3  # batches that are decoded before they are encoded
COMPARED = 1024  # patches on which float8 is compared with float16
PRELOAD = ("panther.encoders.pipeline", "panther.slides")


@dataclass(frozen=True)
class Batch:
    """Decoded patches. The pixels are overwritten when the second next batch is requested."""

    index: int
    pixels: np.ndarray  # (n, size, size, 3) uint8; zero where a patch failed
    failed: dict[int, str] = field(default_factory=dict)  # position in the batch -> reason


class PatchBuffer:
    """The memory that patches are decoded into, and the open source; one per process."""

    def __init__(self, memory: Any, preprocess: Preprocess) -> None:
        size = preprocess.size
        self.pixels = np.frombuffer(memory, np.uint8).reshape(-1, size, size, 3)  # (rows, size, size, 3)
        self._preprocess = preprocess
        self._source: Source | None = None
        self._open: OpenSource | None = None

    def decode(self, source: Source, items: Sequence[Any] | np.ndarray, row: int) -> dict[int, str]:
        """Decode ``items`` into the rows from ``row`` on; reasons of those that failed. The source stays open."""
        if self._open is None or source != self._source:
            self.close()
            self._open, self._source = source.open(), source
        failed = {}
        for offset, item in enumerate(items):
            try:
                self.pixels[row + offset] = self._preprocess(self._open.read(item))
            except InputError as error:
                self.pixels[row + offset] = 0
                failed[offset] = str(error)
        return failed

    def close(self) -> None:
        """Close the source."""
        if self._open is not None:
            self._open.close()
            self._open = self._source = None


class Decoder:
    """Worker processes and the ring of batches that they fill; used for one slide after the other.

    ``workers``: 0 is one per core, 1 decodes in this process. Batch i holds the items i * batch to (i + 1) * batch. In worker
    processes (with ``guarded`` also a single one) a slide that crashes its library fails alone.
    """

    def __init__(self, preprocess: Preprocess, batch: int, workers: int = 0, *, guarded: bool = False) -> None:
        workers = workers or cores()
        self.batch = batch
        in_processes = guarded or workers > 1
        self._slots = AHEAD + 2 if in_processes else 2  # the encoder has two batches
        size = self._slots * batch * preprocess.size**2 * 3
        # an unlinked file in /dev/shm, or in the temporary folder where that is small (containers): gone with the process
        memory = process_context(*PRELOAD).RawArray(ctypes.c_uint8, size)
        self._buffer = PatchBuffer(memory, preprocess)
        self._pool = ProcessPool(workers, _begin, (memory, preprocess), PRELOAD) if in_processes else None

    @property
    def pixels(self) -> np.ndarray:
        """The whole ring (rows, size, size, 3), e.g. to pin it."""
        return self._buffer.pixels

    def call(self, source: Source, function: Callable[..., R], *arguments: Any) -> R:
        """Value of ``function(source, *arguments)``, in a worker if there are any, since a damaged slide may crash its library."""
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

    def batches(self, source: Source, items: Sequence[Any] | np.ndarray) -> Iterator[Batch]:
        """Decode ``items`` in order."""
        numbers = range(-(-len(items) // self.batch))
        waiting: deque[dict[int, Future[dict[int, str]]]] = deque()  # of each batch: position -> task
        upcoming = iter(numbers)
        try:
            for number in numbers:
                while len(waiting) < self._slots - 1 and (index := next(upcoming, None)) is not None:
                    waiting.append(self._submit(source, items, index))
                results = ((at, self._result(source, task)) for at, task in waiting.popleft().items())
                failed = {at + offset: reason for at, result in results for offset, reason in result.items()}
                row = number % self._slots * self.batch
                count = min(self.batch, len(items) - number * self.batch)
                yield Batch(number, self.pixels[row : row + count], failed)
        finally:
            for tasks in waiting:
                for task in tasks.values():
                    task.cancel()

    def _submit(
        self, source: Source, items: Sequence[Any] | np.ndarray, index: int
    ) -> dict[int, "Future[dict[int, str]]"]:
        part, row = items[index * self.batch : (index + 1) * self.batch], index % self._slots * self.batch
        tasks: dict[int, Future[dict[int, str]]] = {}
        for at in range(0, len(part), CHUNK):
            arguments = (source, part[at : at + CHUNK], row + at)
            if self._pool is None:
                tasks[at] = Future()
                tasks[at].set_result(self._buffer.decode(*arguments))
            else:
                tasks[at] = self._pool.schedule(_decode, *arguments)
        return tasks

    def close(self) -> None:
        """End the workers, and close the source."""
        self._buffer.close()
        if self._pool is not None:
            self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_BUFFER: list[PatchBuffer] = []  # of a worker process


def _begin(memory: Any, preprocess: Preprocess) -> None:
    _BUFFER[:] = [PatchBuffer(memory, preprocess)]


def _decode(source: Source, items: Sequence[Any] | np.ndarray, row: int) -> dict[int, str]:
    return _BUFFER[0].decode(source, items, row)


@dataclass(frozen=True)
class ExtractSettings:
    """Settings of the encoding of patches."""

    batch: int = 0  # patches; 0: as suits the device
    workers: int = 0  # processes that decode; 0: one per core, 1: this process
    dtype: str = "float16"  # of the features that are written
    guarded: bool = False  # decode in another process also with one worker: a damaged slide cannot crash this one

    def batch_for(self, device: torch.device) -> int:
        """Patches per batch."""
        return self.batch or BATCH.get(device.type, BATCH["cuda"])


@dataclass(frozen=True)
class Throughput:
    """Time that decoding and encoding waited for each other; summed over slides that run in parallel."""

    patches: int = 0  # encoded in this run
    seconds: float = 0.0
    decoding: float = 0.0  # seconds that the encoder waited for patches
    encoding: float = 0.0  # seconds that were spent on, or waiting for, the encoder
    writing: float = 0.0  # seconds that were spent on files

    def __add__(self, other: "Throughput") -> "Throughput":
        return Throughput(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def __str__(self) -> str:
        if not self.patches:
            return "nothing to encode"
        waited = {"patches": self.decoding, "the encoder": self.encoding, "files": self.writing}
        total = max(sum(waited.values()), 1e-9)
        shares = ", ".join(f"{seconds / total:.0%} for {name}" for name, seconds in waited.items())
        rate = self.patches / max(self.seconds, 1e-9)
        return f"{self.patches:,} patches in {self.seconds:.1f} s ({rate:.0f}/s); time spent waiting: {shares}"


@dataclass(frozen=True, eq=False)
class Encoded:
    """Features of all items of a source."""

    rows: np.ndarray  # (N, dim); zero where an item could not be decoded
    failed: dict[int, str] = field(default_factory=dict)  # position -> reason
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
        self.batch, about = self.settings.batch_for(encoder.device), encoder.about
        preprocess = Preprocess(about.size, about.resize or about.size, about.interpolation)
        self._decoder = Decoder(preprocess, self.batch, self.settings.workers, guarded=self.settings.guarded)
        # called with the number of patches of every encoded batch
        self.on_progress: Callable[[int], None] = lambda patches: None
        self._pinned = False  # the ring, so that copies to the GPU run in parallel; where it cannot be, they are slower
        if encoder.device.type == "cuda":
            cudart: Any = torch.cuda.cudart()
            self._pinned = (
                cudart.cudaHostRegister(self._decoder.pixels.ctypes.data, self._decoder.pixels.nbytes, 0) == 0
            )
        self.agreement: dict[str, float] = {}  # of float8 with float16, on patches of the first slide

    def call(self, source: Source, function: Callable[..., R], *arguments: Any) -> R:
        """Value of ``function(source, *arguments)``, in the process that decodes patches."""
        return self._decoder.call(source, function, *arguments)

    def run(self, source: Source, items: Sequence[Any] | np.ndarray) -> Encoded:
        """Encode all items; after an overflow of float16 in bfloat16."""
        if self.encoder.reference is not None and not self.agreement and len(items):
            self.agreement = self._compare(source, items, self.encoder.reference)
        try:
            return self._run(source, items)
        except FloatingPointError as error:
            name, precision = self.encoder.about.name, self.encoder.precision
            if not self.encoder.falls_back or precision != "float16":
                raise InputError(f"encoder {name!r}: {error} in {precision}; try `precision=float32`") from error
            note(f"encoder {name!r}: {error} in float16; computing in bfloat16")
            self.encoder = self.encoder.in_bfloat16()
            return self._run(source, items)

    def _compare(self, source: Source, items: Sequence[Any] | np.ndarray, reference: Encoder) -> dict[str, float]:
        """Agreement with the reference on at most `COMPARED` items, without those that cannot be decoded or overflow in float16."""
        from panther.encoders.float8 import agreement

        features: tuple[list[torch.Tensor], list[torch.Tensor]] = ([], [])
        for batch in self._decoder.batches(source, items[:: -(-len(items) // COMPARED)]):
            good = [at for at in range(len(batch.pixels)) if at not in batch.failed]
            for encoder, rows in zip((self.encoder, reference), features, strict=True):
                rows.append(encoder(batch.pixels)[good])
        ours, exact = map(torch.cat, features)
        finite = (ours.isfinite() & exact.isfinite()).all(1)
        if not bool(finite.any()):
            return {}
        measured = agreement(ours[finite], exact[finite])
        cosine, same = measured["smallest_cosine"], measured["same_prototype"]
        name = self.encoder.about.name
        note(
            f"encoder {name!r} in float8: cosine with float16 >= {cosine:.4f}, {same:.1%} of patches keep their prototype"
        )
        return {f"float8_{key}": value for key, value in measured.items()}

    def _run(self, source: Source, items: Sequence[Any] | np.ndarray) -> Encoded:
        """Encode all items. One batch is on the device while the one before is collected."""
        begin = time.perf_counter()
        encoded = Encoded(np.zeros((len(items), self.encoder.about.dim), DTYPES[self.settings.dtype]))
        decoding = encoding = 0.0
        previous: tuple[Batch, Callable[[], torch.Tensor]] | None = None
        batches = self._decoder.batches(source, items)
        while True:
            start = time.perf_counter()
            batch = next(batches, None)
            decoded = time.perf_counter()
            running = None if batch is None else (batch, self.encoder.start(batch.pixels))
            rows = None if previous is None else previous[1]().numpy()
            decoding, encoding = decoding + decoded - start, encoding + time.perf_counter() - decoded
            if previous is not None and rows is not None:
                self._keep(previous[0], rows, encoded)
            if running is None:
                break
            previous = running
        return replace(encoded, throughput=Throughput(len(items), time.perf_counter() - begin, decoding, encoding))

    def _keep(self, batch: Batch, rows: np.ndarray, encoded: Encoded) -> None:
        good = np.ones(len(rows), bool)
        good[list(batch.failed)] = False
        if not np.isfinite(rows[good]).all():
            raise FloatingPointError("NaN or infinite features")
        first = batch.index * self.batch
        out = encoded.rows[first : first + len(rows)]
        with np.errstate(over="ignore"):
            out[good] = rows[good]
        if not np.isfinite(out).all():
            raise InputError(f"features up to {np.abs(rows[good]).max():.3g} do not fit float16; use `dtype=float32`")
        encoded.failed.update({first + row: reason for row, reason in sorted(batch.failed.items())})
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

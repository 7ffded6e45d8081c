"""Decode and encode side by side, batch by batch; the pixels wait in pinned memory, and copies to the device do not block."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from panther.encoders._base import PER_CORE, Encoder, Started
from panther.encoders.decode import Batch, Decoder
from panther.encoders.images import Preprocess
from panther.encoders.sources import Source
from panther.errors import InputError, check_choice
from panther.machine import cores

DTYPES: dict[str, np.dtype] = {"float16": np.dtype(np.float16), "float32": np.dtype(np.float32)}
BATCH = {"cuda": 256, "cpu": max(8, PER_CORE * cores())}


@dataclass(frozen=True)
class ExtractSettings:
    """How patches become features."""

    batch: int = 0  # patches; 0: what suits the device
    workers: int = 0  # processes that decode; 0: one per core, 1: this process
    dtype: str = "float16"  # of the features that are written
    guarded: bool = (
        False  # decode in processes of their own even where it is one: a damaged slide cannot crash this one
    )

    def __post_init__(self) -> None:
        check_choice("dtype", self.dtype, DTYPES)
        if self.batch < 0 or self.workers < 0:
            raise InputError(f"`batch={self.batch}` and `workers={self.workers}` must not be negative.")

    def batch_for(self, device: torch.device) -> int:
        """Patches per batch."""
        return self.batch or BATCH.get(device.type, BATCH["cuda"])


@dataclass(frozen=True)
class Balance:
    """How long decoding and encoding waited for each other; of slides that go side by side the waiting adds up."""

    patches: int = 0  # encoded in this run
    seconds: float = 0.0
    decoding: float = 0.0  # seconds that the encoder waited for patches
    encoding: float = 0.0  # seconds that were spent on, or waiting for, the encoder
    writing: float = 0.0  # seconds that were spent on files

    def __add__(self, other: "Balance") -> "Balance":
        return Balance(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))

    def __str__(self) -> str:
        if not self.patches:
            return "nothing to encode"
        waited = {"patches": self.decoding, "the encoder": self.encoding, "files": self.writing}
        shares = ", ".join(f"{part / max(sum(waited.values()), 1e-9):.0%} for {what}" for what, part in waited.items())
        return (
            f"{self.patches:,} patches in {self.seconds:.1f} s ({self.patches / max(self.seconds, 1e-9):.0f}/s); "
            f"of that time waited: {shares}"
        )


@dataclass(frozen=True, eq=False)
class Encoded:
    """Features of all items of a source."""

    rows: np.ndarray  # (N, dim); zero where an item could not be decoded
    failed: dict[int, str] = field(default_factory=dict)  # position -> why
    balance: Balance = field(default_factory=Balance)

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
        self.on_progress: Callable[[int], None] = lambda patches: (
            None
        )  # called with the patches of every batch that is kept
        self._pinned = encoder.device.type == "cuda" and _pin(self._decoder.pixels)

    @property
    def dtype(self) -> np.dtype:
        """Type of the features."""
        return DTYPES[self.settings.dtype]

    def check(self, slide: Path, mpp: float | None) -> None:
        """Refuse a slide that cannot be opened, even one that crashes the library that reads it."""
        self._decoder.check(slide, mpp)

    def run(self, source: Source, items: Sequence[Any] | np.ndarray) -> Encoded:
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
        return replace(made, balance=Balance(len(items), time.perf_counter() - begin, decoding, encoding))

    def _keep(self, batch: Batch, rows: np.ndarray, made: Encoded) -> None:
        good = np.ones(len(rows), bool)
        good[list(batch.failed)] = False
        if not np.isfinite(rows[good]).all():
            raise InputError(
                f"The encoder {self.encoder.about.name!r} gave NaN or infinite features in {self.encoder.precision.name}; "
                "try `precision=float32`."
            )
        first = batch.index * self.batch
        out = made.rows[first : first + len(rows)]
        with np.errstate(over="ignore"):
            out[good] = rows[good].astype(self.dtype)
        if not np.isfinite(out).all():
            raise InputError(f"Features up to {np.abs(rows[good]).max():.3g} do not fit float16; use `dtype=float32`.")
        made.failed.update({first + row: reason for row, reason in sorted(batch.failed.items())})
        self.on_progress(len(out))

    def close(self) -> None:
        """End the decoding processes."""
        if self._pinned:
            _unpin(self._decoder.pixels, self.encoder.device)
        self._decoder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _pin(pixels: np.ndarray) -> bool:
    """Pin the ring, so that copies to the GPU run beside everything else; without it they are slower, not wrong."""
    cudart: Any = torch.cuda.cudart()
    return int(cudart.cudaHostRegister(pixels.ctypes.data, pixels.nbytes, 0)) == 0


def _unpin(pixels: np.ndarray, device: torch.device) -> None:
    torch.cuda.synchronize(device)
    cudart: Any = torch.cuda.cudart()
    cudart.cudaHostUnregister(pixels.ctypes.data)

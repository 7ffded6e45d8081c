"""Bags for a trainer: read ahead from disk by a thread, in an order that the epoch and the seed decide."""

import math
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from panther.errors import InputError, not_finite
from panther.statistics import first_bad_row
from panther.types import Bag, Openable, Rows

Batch = tuple[dict[str, Any], dict[str, Tensor]]  # (inputs of the model, encoded target)


@dataclass(frozen=True)
class LoadSettings:
    """How bags are read; the second half is for training only, evaluation always sees all patches."""

    batch_size: int = 1  # bags; several are padded to the longest, with a mask
    read_ahead: int = 4  # batches that may wait in memory ...
    read_ahead_bytes: int = 1 << 30  # ... if together they are not larger than this; one may always wait
    held_bytes: int = (
        512 << 20
    )  # bags that are read again are held, up to so much; the others come from disk in every epoch
    shuffle: bool = True
    max_patches: int | None = None  # a bag with more is a new random sample of that many in every epoch
    instance_dropout: float = 0.0  # share of the patches left out at random; at least one stays

    def __post_init__(self) -> None:
        for name in ("batch_size", "read_ahead", "read_ahead_bytes"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}; expected a number of at least 1.")
        if self.max_patches is not None and self.max_patches < 1:
            raise InputError(f"max_patches is {self.max_patches}; expected at least 1, or none for all patches.")
        if not 0 <= self.instance_dropout < 1:
            raise InputError(f"instance_dropout is {self.instance_dropout}; expected a share from 0 to below 1.")

    def for_evaluation(self) -> "LoadSettings":
        """In the given order, all patches."""
        return replace(self, shuffle=False, max_patches=None, instance_dropout=0.0)


@dataclass(frozen=True, eq=False)
class BagSource:
    """Bags with their targets, batch by batch.

    Features stay as they are on disk, float16 as a rule, until the network widens them. Slides of a patient are one bag: a
    sample is anything with a name and an `open`, see :func:`panther.storage.bags.group_by_patient`. Order and random samples
    depend on (seed, epoch) alone: a training that was killed goes on with the epoch it was in.

    Parameters
    ----------
    samples : sequence of Openable
        Where the patches are.
    target : mapping
        Encoded target, each tensor (n, ...) in the samples' order.
    settings : LoadSettings
        For the validation and test parts use :meth:`LoadSettings.for_evaluation`.
    """

    samples: Sequence[Openable]
    target: Mapping[str, Tensor]
    settings: LoadSettings = field(default_factory=LoadSettings)
    _held: "_HeldBags" = field(default_factory=lambda: _HeldBags(), init=False, repr=False)

    def __post_init__(self) -> None:
        sizes = {len(values) for values in self.target.values()}
        if not self.samples or sizes != {len(self.samples)}:
            raise InputError(
                f"There are {len(self.samples)} bags for {sorted(sizes)} targets; both must be the same samples."
            )

    def __len__(self) -> int:
        return math.ceil(len(self.samples) / self.settings.batch_size)

    def order(self, epoch: int, seed: int) -> Tensor:
        """Which sample comes when, (n,)."""
        if not self.settings.shuffle:
            return torch.arange(len(self.samples))
        return torch.randperm(len(self.samples), generator=_generator(seed, epoch))

    def epoch(self, epoch: int, seed: int) -> Iterator[Batch]:
        """Batches of that epoch, ``({"x": (B, N, d), "mask": (B, N)}, target)``; the mask only where something is padding."""
        return _read_ahead(self._batches(epoch, seed), self.settings.read_ahead, self.settings.read_ahead_bytes)

    def _batches(self, epoch: int, seed: int) -> Iterator[Batch]:
        for chosen in self.order(epoch, seed).split(self.settings.batch_size):
            bags = [self._read(int(index), _generator(seed, epoch, int(index))) for index in chosen]
            yield padded(bags), {name: values[chosen] for name, values in self.target.items()}

    def _read(self, index: int, generator: torch.Generator) -> Tensor:
        """Patches (n, d) of one sample in memory, checked."""
        bag = self._held.bags.get(index) or self._held.opened(index, self.samples[index], self.settings.held_bytes)
        if len(bag) == 0:
            raise InputError(f"{bag.source}: zero patches; there is nothing to learn from, leave it out.")
        kept = sampled_rows(len(bag), self.settings, generator)
        x = bag.features[:] if kept is None else _rows(bag.features, kept)
        if not bool(torch.isfinite(x.sum(dtype=torch.float32))) and first_bad_row(x) is not None:
            raise not_finite(bag.source, first_bad_row(bag.features) or 0)
        return x.clone() if kept is None else x  # out of the memory map: from here on the thread's reading is done


@dataclass
class _HeldBags:
    """Cache of the bags of a small part, in memory from the second epoch on: opening a file takes as long as a step."""

    bags: dict[int, Bag] = field(default_factory=dict)
    bytes: int = 0
    seen: set[int] = field(default_factory=set)

    def opened(self, index: int, sample: Openable, most_bytes: int) -> Bag:
        """Open a bag, and hold it if it has been opened before and there is room."""
        bag = sample.open()
        size = len(bag) * bag.dim * bag.features.dtype.itemsize
        if index in self.seen and bag is not sample and self.bytes + size <= most_bytes:
            bag = self.bags[index] = replace(bag, features=bag.features[:].clone())
            self.bytes += size
        self.seen.add(index)
        return bag


def sampled_rows(n: int, settings: LoadSettings, generator: torch.Generator) -> Tensor | None:
    """Which of n patches training sees this time, sorted; None for all."""
    count = n - int(n * settings.instance_dropout)  # rounded up: one patch always stays
    count = min(count, settings.max_patches or count)
    return None if count >= n else torch.randperm(n, generator=generator)[:count].sort().values


def padded(bags: Sequence[Tensor]) -> dict[str, Any]:
    """One batch of bags (n_i, d): x (B, N, d), and a mask (B, N) where lengths differ."""
    longest = max(len(bag) for bag in bags)
    if all(len(bag) == longest for bag in bags):
        return {"x": bags[0].unsqueeze(0) if len(bags) == 1 else torch.stack(list(bags))}
    widths = {bag.shape[1] for bag in bags}
    if len(widths) != 1:
        raise InputError(
            f"Bags of one batch have {sorted(widths)} features per patch; encode all slides with one encoder."
        )
    dtype = bags[0].dtype
    for bag in bags[1:]:
        dtype = torch.promote_types(dtype, bag.dtype)
    x = torch.zeros(len(bags), longest, bags[0].shape[1], dtype=dtype)
    mask = torch.zeros(len(bags), longest, dtype=torch.bool)
    for row, bag in enumerate(bags):
        x[row, : len(bag)], mask[row, : len(bag)] = bag.to(dtype), True
    return {"x": x, "mask": mask}


def _rows(features: Rows, kept: Tensor) -> Tensor:
    """Copy only the chosen rows; a file that is not mapped is walked in blocks, never held whole."""
    if isinstance(features, Tensor):
        return features[kept]
    step, parts = 8192, []
    for start in range(0, int(features.shape[0]), step):
        inside = kept[(kept >= start) & (kept < start + step)] - start
        if len(inside):
            parts.append(features[start : start + step][inside])
    return torch.cat(parts)


def _generator(*numbers: int) -> torch.Generator:
    """Random numbers that depend on these numbers alone."""
    mixed = int(np.random.SeedSequence([abs(n) for n in numbers]).generate_state(1, np.uint64)[0] >> 1)
    return torch.Generator().manual_seed(mixed)


@dataclass
class _Waiting:
    """Queue of batches between the reading thread and the trainer."""

    items: deque[Batch] = field(default_factory=deque)
    bytes: int = 0
    error: BaseException | None = None
    finished: bool = False
    stopped: bool = False
    changed: threading.Condition = field(default_factory=threading.Condition)


def _read_ahead(batches: Iterator[Batch], most: int, most_bytes: int) -> Iterator[Batch]:
    """Same batches, read by a thread while the trainer computes; an error of the reader is raised where its batch would be."""
    waiting = _Waiting()
    thread = threading.Thread(target=_reader, args=(batches, waiting, most, most_bytes), daemon=True, name="read-ahead")
    thread.start()
    try:
        while True:
            with waiting.changed:
                waiting.changed.wait_for(lambda: waiting.items or waiting.finished)
                if not waiting.items:
                    break
                batch = waiting.items.popleft()
                waiting.bytes -= _size(batch)
                waiting.changed.notify_all()
            yield batch
            del batch  # before the next one is taken: never one more in memory than announced
        if waiting.error is not None:
            raise waiting.error
    finally:  # also when the trainer stops half-way
        with waiting.changed:
            waiting.stopped = True
            waiting.items.clear()
            waiting.changed.notify_all()
        thread.join()


def _reader(batches: Iterator[Batch], waiting: _Waiting, most: int, most_bytes: int) -> None:
    def room(size: int) -> bool:
        fits = len(waiting.items) < most and waiting.bytes + size <= most_bytes
        return waiting.stopped or not waiting.items or fits

    try:
        for batch in batches:
            size = _size(batch)
            with waiting.changed:
                waiting.changed.wait_for(lambda size=size: room(size))  # type: ignore[misc]
                if waiting.stopped:
                    return
                waiting.items.append(batch)
                waiting.bytes += size
                waiting.changed.notify_all()
    except BaseException as error:  # of any kind: raised again in the trainer
        waiting.error = error
    finally:
        with waiting.changed:
            waiting.finished = True
            waiting.changed.notify_all()


def _size(batch: Batch) -> int:
    return sum(v.numel() * v.element_size() for v in batch[0].values() if isinstance(v, Tensor))

"""Where a trainer's batches come from: a protocol, and embeddings in memory or on disk."""

import math
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from panther.errors import InputError
from panther.models.blocks.joint_scaling import AnyScaler, scaler_parts

HELD_BYTES = 256 << 20  # of embeddings, up to which they are held in memory
BLOCK = 256  # rows that are read at a time

Batch = tuple[dict[str, Any], dict[str, Tensor]]  # (inputs of the model, encoded target)


class BatchSource(Protocol):
    """Where batches come from: embeddings in memory, or bags read one by one.

    The model is called as ``model(**inputs)``; it returns logits (B, n_outputs), or an object with ``.logits``. A model with
    a loss of its own (DSMIL's instance loss) has a method ``loss(outputs, batch, task) -> Tensor``, which is then used for
    training instead of ``task.loss(logits, batch)``; validation always uses the task's.
    """

    def __len__(self) -> int:
        """Batches per epoch."""

    def epoch(self, epoch: int, seed: int) -> Iterator[Batch]:
        """Batches of that epoch; the same for the same numbers, whatever ran before."""


@dataclass(frozen=True, eq=False)
class ArraySource:
    """Embeddings as an array or memory map, with their encoded target.

    Rows are read and scaled once where they are few enough to hold and where a row is scaled alike whatever lies beside it; else as they come.
    """

    x: Tensor | np.ndarray  # (n, ...), every row of the cohort
    target: Mapping[str, Tensor]  # each (n_rows, ...), of the chosen rows
    batch_size: int
    rows: np.ndarray | None = None  # which rows of x, e.g. the training part; None takes all
    scaler: AnyScaler | None = None
    shuffle: bool = True
    _held: Tensor | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        rows = np.arange(len(self.x)) if self.rows is None else np.asarray(self.rows)
        object.__setattr__(self, "rows", rows)
        sizes = {len(values) for values in self.target.values()}
        if len(rows) == 0 or sizes != {len(rows)}:
            raise InputError(
                f"There are {len(rows)} embeddings for {sorted(sizes)} targets; both must be the same samples."
            )
        # a product of matrices (a reduction) may round a row as its neighbours have it
        alike = self.scaler is None or all(part.reduction is None for part in scaler_parts(self.scaler))
        held: list[Tensor] = []
        for start in range(0, len(rows), BLOCK):
            block = self._read(rows[start : start + BLOCK])
            bad = (~torch.isfinite(block.flatten(1)).all(1)).nonzero()
            if len(bad):
                row = int(rows[start + int(bad[0])])
                raise InputError(
                    f"Row {row} of the embeddings holds NaN or an infinite number; embed this sample again."
                )
            if alike and block[0].nbytes * len(rows) <= HELD_BYTES:
                held.append(self._scaled(block))
        object.__setattr__(self, "_held", torch.cat(held) if held else None)

    def in_order(self) -> "ArraySource":
        """The same rows as they are."""
        ordered = copy(self)
        object.__setattr__(ordered, "shuffle", False)
        return ordered

    def __len__(self) -> int:
        return math.ceil(len(self._rows) / self.batch_size)

    def epoch(self, epoch: int, seed: int) -> Iterator[Batch]:
        """Batches in a new order every epoch, or as they are."""
        order = torch.arange(len(self._rows))
        if self.shuffle:
            order = torch.randperm(len(order), generator=torch.Generator().manual_seed(mixed_seed(seed, epoch)))
        for chosen in order.split(self.batch_size):
            x = self._scaled(self._read(self._rows[chosen.numpy()])) if self._held is None else self._held[chosen]
            yield {"x": x}, {k: v[chosen] for k, v in self.target.items()}

    @property
    def _rows(self) -> np.ndarray:
        assert self.rows is not None
        return self.rows

    def _read(self, rows: np.ndarray) -> Tensor:
        if isinstance(self.x, Tensor):
            return self.x[torch.as_tensor(rows)].float()
        return torch.as_tensor(np.asarray(self.x[rows], dtype=np.float32))

    def _scaled(self, x: Tensor) -> Tensor:
        return x if self.scaler is None else self.scaler(x)


def mixed_seed(seed: int, epoch: int) -> int:
    """Seed of one epoch, unrelated to its neighbours'."""
    return int(np.random.SeedSequence([seed, epoch]).generate_state(1, np.uint64)[0] >> 1)

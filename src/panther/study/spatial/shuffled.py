"""Bags whose patches lie at each other's places: what a method has read from space is gone, and all else is as it was."""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from panther.store import hash_of
from panther.types import Bag, Openable, Rows


@dataclass(frozen=True)
class Shuffled:
    """A slide, or the slides of a patient, with features shuffled against coordinates within each slide.

    Places keep their order in the file and get other features. That is the same as to give every patch a new place and to bring the rows into
    the order of these places: a method that reads coordinates, or the order of rows, sees the outline of the tissue as it was and nothing else.
    """

    ref: Openable
    repeat: int  # another one is another shuffle

    @property
    def sample(self) -> str:
        """Name of the slide or patient."""
        return self.ref.sample

    @property
    def files(self) -> tuple[Path, ...]:
        """Files that hold the patches."""
        return self.ref.files

    def open(self) -> Bag:
        """Patches at shuffled places; in memory, as stored, once they are read."""
        bag = self.ref.open()
        seed = int(hash_of(["shuffle", self.sample, self.repeat]), 16)
        return replace(bag, features=ShuffledRows(bag.features, bag.lengths or (len(bag),), seed))


@dataclass(frozen=True)
class ShuffledRows:
    """Rows (N, d), those of each slide in an order that the seed alone decides."""

    rows: Rows
    lengths: tuple[int, ...]  # patches of each slide
    seed: int

    @property
    def shape(self) -> tuple[int, int]:
        """(N, d)."""
        return int(self.rows.shape[0]), int(self.rows.shape[1])

    @property
    def dtype(self) -> torch.dtype:
        """Type of the numbers as stored."""
        return self.rows.dtype

    @cached_property
    def _in_memory(self) -> Tensor:
        # any slice of shuffled rows lies all over the file: it is read once, from first to last
        rng, ends = np.random.default_rng(self.seed), np.cumsum(self.lengths)
        order = np.concatenate([end - n + rng.permutation(n) for n, end in zip(self.lengths, ends, strict=True)])
        return self.rows[0 : self.shape[0]][torch.from_numpy(order)]

    def __getitem__(self, rows: slice) -> Tensor:
        return self._in_memory[rows]

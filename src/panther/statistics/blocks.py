"""Blocks of rows: their size, type and memory."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from panther.errors import InputError
from panther.types import Ragged, Rows

BLOCK_BYTES = {"cpu": 2 << 20, "cuda": 256 << 20}  # on a CPU a block and its squares stay in cache


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """Half-precision features are widened block by block to float32; float64 stays."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def block_rows(dim: int, itemsize: int, device: str, batch: int = 1) -> int:
    """Number of rows of a block on a device."""
    return max(32, BLOCK_BYTES.get(device, BLOCK_BYTES["cuda"]) // (dim * itemsize * batch))


def first_bad_row(x: Rows) -> int | None:
    """Index of the first row with a NaN or an infinite number; None if there is none."""
    step = block_rows(int(x.shape[1]), 4, "cpu")
    for start in range(0, int(x.shape[0]), step):
        block = x[start : start + step]
        if math.isfinite(float(block.sum(dtype=torch.float32))):  # sufficient; an infinite sum may be an overflow
            continue
        bad = ~torch.isfinite(block).all(-1)
        if bool(bad.any()):
            return start + int(bad.nonzero()[0])
    return None


def can_be_squared(x: Tensor) -> Tensor:
    """Which rows (N,) have a length that float32 holds, with room for distances between them."""
    return (2 * x.float()).square().sum(-1).isfinite()


def take(x: Rows, index: Tensor) -> Tensor:
    """Rows of ``x`` at sorted indices, as stored."""
    if isinstance(x, Tensor):
        return x[index.to(x.device)]
    index = index.cpu()
    if len(index) * 8 < int(x.shape[0]):  # few: read row by row
        parts = [x[i : i + 1] for i in index.tolist()]
    else:
        step = block_rows(int(x.shape[1]), 4, "cpu")
        parts = [
            x[low : low + step][index[(index >= low) & (index < low + step)] - low]
            for low in range(0, int(x.shape[0]), step)
        ]
    return torch.cat(parts) if parts else torch.empty(0, int(x.shape[1]), dtype=x.dtype)


def check_patches(x: Rows | Ragged, mask: Tensor | None) -> None:
    """Refuse a bag, or a bag of a batch, without patches."""
    if x.shape[-2] == 0:
        raise InputError("The bag is empty (0 patches); an embedding needs at least one patch.")
    if mask is not None and not bool(mask.any(-1).all()):
        raise InputError("A bag of the batch is empty (its mask has no real patch); leave it out.")


def blocks(x: Rows, mask: Tensor | None, origin: Tensor) -> Iterator[tuple[Tensor, Tensor | None]]:
    """Rows and their mask, block by block, on the device of the origin."""
    batch = int(x.shape[0]) if len(x.shape) == 3 else 1
    step = block_rows(int(x.shape[-1]), origin.element_size(), origin.device.type, batch)
    for start in range(0, int(x.shape[-2]), step):
        rows = slice(start, start + step)
        block = x[rows] if len(x.shape) == 2 else x[:, rows]  # type: ignore[index]
        yield block.to(origin.device), None if mask is None else mask[..., rows].to(origin.device)


class Workspace:
    """Memory for a block and its squares, reused for all blocks unless gradients need the previous ones.

    Fresh memory for every block costs as much as the arithmetic on it: the system hands it out page by page.
    """

    def __init__(self, *, reuse: bool) -> None:
        self._reuse = reuse
        self._held: dict[str, Tensor] = {}

    def centred(self, block: Tensor, origin: Tensor, real: Tensor | None) -> Tensor:
        """Block minus origin, in the type of the origin; zero at padding, which may contain NaN."""
        if not self._reuse:
            z = block - origin if block.dtype == origin.dtype else block.to(origin.dtype).sub_(origin)
            return z if real is None else z.masked_fill(~real.unsqueeze(-1), 0.0)
        z = self._memory("centred", block.shape, origin)
        if block.dtype == origin.dtype:
            torch.sub(block, origin, out=z)
        else:
            z.copy_(block).sub_(origin)
        return z if real is None else z.masked_fill_(~real.unsqueeze(-1), 0.0)

    def squared(self, z: Tensor) -> Tensor:
        """Squares of a centred block."""
        return torch.mul(z, z, out=self._memory("squared", z.shape, z)) if self._reuse else z * z

    def _memory(self, name: str, shape: torch.Size, like: Tensor) -> Tensor:
        held = self._held.get(name)
        if held is None or held.shape[0] < shape[0] or held.shape[1:] != shape[1:]:
            held = self._held[name] = torch.empty(shape, dtype=like.dtype, device=like.device)
        return held[: shape[0]]

"""A tiny encoder, tiles and a pyramid with known pixels."""

from pathlib import Path

import numpy as np
import tifffile
import torch
from PIL import Image
from torch import nn

from panther.encoders import Encoder, EncoderInfo


class Means(nn.Module):
    """Mean colour of the four quarters of a patch, at its own scale: features whose truth is known."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(12), requires_grad=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return nn.functional.adaptive_avg_pool2d(images, 2).flatten(1) * self.scale


def tiny(size: int = 32, scale: float = 1.0) -> Encoder:
    model = Means()
    model.scale.data *= scale
    facts = EncoderInfo("tiny", 12, size, None, (0.0, 0.0, 0.0), (1 / 255,) * 3, "none")
    return Encoder(facts, model.eval(), f"weights {scale}", torch.device("cpu"))


def make_tiles(folder: Path, count: int, size: int = 32, seed: int = 0) -> np.ndarray:
    pixels = np.random.default_rng(seed).integers(0, 256, (count, size, size, 3), dtype=np.uint8)
    folder.mkdir(parents=True, exist_ok=True)
    for index, tile in enumerate(pixels):
        Image.fromarray(tile).save(folder / f"{index:03d}.png")
    return pixels


def make_pyramid(path: Path, side: int = 512, tile: int = 128) -> np.ndarray:
    """JPEG-compressed tiles, two levels; blocks of one colour each, so that levels and compression agree."""
    rng = np.random.default_rng(1)
    blocks = rng.integers(0, 256, (side // 64, side // 64, 3), dtype=np.uint8)
    full = np.kron(blocks, np.ones((64, 64, 1), np.uint8))
    half = np.ascontiguousarray(full[::2, ::2])
    options = {"tile": (tile, tile), "compression": "jpeg", "photometric": "rgb", "compressionargs": {"level": 95}}
    with tifffile.TiffWriter(path) as file:
        file.write(full, **options)
        file.write(half, subfiletype=1, **options)
    return full


def damage(path: Path, level: int, tile: int) -> None:
    """Overwrite one compressed tile with zeros."""
    with tifffile.TiffFile(path) as file:
        page = file.pages[level]
        start, length = page.dataoffsets[tile], page.databytecounts[tile]
    with path.open("r+b") as handle:
        handle.seek(start)
        handle.write(bytes(length))


def quarters(pixels):
    n, side = len(pixels), pixels.shape[1] // 2
    parts = pixels.reshape(n, 2, side, 2, side, 3).astype(np.float64).mean((2, 4))  # (n, 2, 2, 3)
    return parts.transpose(0, 3, 1, 2).reshape(n, 12)

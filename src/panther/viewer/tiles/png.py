"""Overlay tiles as PNG: a small number per pixel and a table of colours, nothing else."""

import io
from dataclasses import dataclass

import numpy as np
from PIL import Image

LEVELS = 255  # colours of a quantity; number 0 is transparent


@dataclass(frozen=True, eq=False)
class Colours:
    """Colour of every patch, as a number into a table."""

    codes: np.ndarray  # (N + 1,) uint8; 0 is transparent, and so is the last, which stands for no patch
    table: np.ndarray  # (at most 256, 4) uint8

    @classmethod
    def of_classes(cls, labels: np.ndarray, colours: np.ndarray, shown: np.ndarray) -> "Colours":
        """Colours (C, 3) of labels (N,); those that are not ``shown`` (N,) are transparent."""
        distinct, number = np.unique(colours, axis=0, return_inverse=True)
        # a palette of more than 255 colours: the last ones become one, they cannot be told apart anyway
        codes = np.minimum(number.reshape(-1) + 1, LEVELS)[labels]
        return cls(_coded(codes, shown), _opaque(distinct[:LEVELS]))

    @classmethod
    def of_values(cls, parts: np.ndarray, scale: np.ndarray, shown: np.ndarray) -> "Colours":
        """Colours of quantities (N,) from 0 to 1 on a scale (255, 3)."""
        known = np.isfinite(parts)
        codes = 1 + np.round(np.clip(np.where(known, parts, 0), 0, 1) * (LEVELS - 1)).astype(np.int64)
        return cls(_coded(codes, shown & known), _opaque(scale))


def _coded(codes: np.ndarray, shown: np.ndarray) -> np.ndarray:
    return np.append(np.where(shown, codes, 0), 0).astype(np.uint8)


def _opaque(colours: np.ndarray) -> np.ndarray:
    table = np.full((len(colours) + 1, 4), 255, np.uint8)
    table[0], table[1:, :3] = 0, colours
    return table


def encode(codes: np.ndarray, table: np.ndarray) -> bytes:
    """PNG of numbers (h, w) uint8 and their colours (n, 4)."""
    picture = Image.frombytes("P", codes.shape[::-1], np.ascontiguousarray(codes).tobytes())
    picture.putpalette(np.ascontiguousarray(table[:, :3]).tobytes())
    buffer = io.BytesIO()
    picture.save(buffer, "png", transparency=table[:, 3].tobytes(), compress_level=1)
    return buffer.getvalue()

"""Nuclei: ellipses with uneven outlines, painted together."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

BUCKETS = (6, 9, 13, 18, 26)  # half widths of the windows that nuclei are painted in, pixels
CHUNK = 2**21  # pixels whose random numbers are drawn at a time
PIECE = 2**16  # pixels painted at a time: stays in the processor's cache rather than in main memory


@dataclass(frozen=True)
class Look:
    """Appearance of the nuclei of a tissue; lengths in pixels of 0.5 um."""

    radius: float  # mean half length
    spread: float = 0.15  # standard deviation of its logarithm: pleomorphism
    elongation: float = 1.2  # length to width
    darkness: float = 1.0  # haematoxylin
    rim: float = 0.0  # 0: evenly dark; 1: all chromatin at the membrane
    nucleolus: float = 0.0  # darkness of one spot inside
    wobble: float = 0.06  # unevenness of the outline


@dataclass(frozen=True)
class Nuclei:
    """Nuclei of one appearance, all arrays (N,)."""

    x: np.ndarray
    y: np.ndarray
    length: np.ndarray  # half axes
    width: np.ndarray
    angle: np.ndarray
    darkness: np.ndarray
    look: Look


def nuclei_at(rng: np.random.Generator, points: np.ndarray, look: Look, angle: np.ndarray | None = None) -> Nuclei:
    """Nuclei at points (N, 2), along ``angle`` (N,) or in random directions."""
    n = len(points)
    length = look.radius * np.exp(rng.normal(0, look.spread, n))
    width = length / np.maximum(1.0, look.elongation * np.exp(rng.normal(0, 0.12, n)))
    turned = rng.uniform(0, np.pi, n) if angle is None else angle
    darkness = look.darkness * np.exp(rng.normal(0, 0.14, n))
    return Nuclei(points[:, 0], points[:, 1], length, width, turned, darkness, look)


def paint(target: np.ndarray, nuclei: Nuclei, rng: np.random.Generator) -> None:
    """Paint haematoxylin of nuclei into ``target`` (h, w); where two overlap the darker one shows. Those over the edge are cut."""
    flat = target.reshape(-1)
    for half, chosen in _buckets(nuclei):
        uneven = _drawn(nuclei.look, len(chosen), rng)
        step = max(1, PIECE // (2 * half + 1) ** 2)
        for start in range(0, len(chosen), step):
            part = slice(start, start + step)
            values, rows, columns = _painted(nuclei, chosen[part], half, uneven[:, part])
            inside = values > 0
            inside &= ((rows >= 0) & (rows < target.shape[0]))[:, :, None]
            inside &= ((columns >= 0) & (columns < target.shape[1]))[:, None, :]
            places = (rows * target.shape[1])[:, :, None] + columns[:, None, :]
            np.maximum.at(flat, places[inside], values[inside])


def _buckets(nuclei: Nuclei) -> Iterator[tuple[int, np.ndarray]]:
    """Half widths of windows and the nuclei that fit into them, a chunk at a time."""
    needed = np.ceil(nuclei.length * (1 + 2 * nuclei.look.wobble)) + 1
    bucket = np.searchsorted(BUCKETS[:-1], needed)
    for number, half in enumerate(BUCKETS):
        members = np.flatnonzero(bucket == number)
        step = max(1, CHUNK // (2 * half + 1) ** 2)
        for start in range(0, len(members), step):
            yield half, members[start : start + step]


def _drawn(look: Look, count: int, rng: np.random.Generator) -> np.ndarray:
    """Random parameters of each nucleus, (4, n, 1, 1): phases of the outline's two waves, position of the nucleolus."""
    numbers = np.zeros((4, count, 1, 1), np.float32)
    if look.wobble:
        numbers[0], numbers[1] = (rng.uniform(0, 6.28, (count, 1, 1)) for _ in range(2))
    if look.nucleolus:
        numbers[2], numbers[3] = (rng.uniform(-0.35, 0.35, (count, 1, 1)) for _ in range(2))
    return numbers


def _painted(
    nuclei: Nuclei, chosen: np.ndarray, half: int, uneven: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values (n, s, s), rows (n, s) and columns (n, s) of the windows around nuclei."""
    look = nuclei.look

    def column(values: np.ndarray) -> np.ndarray:
        return values[chosen].astype(np.float32)[:, None, None]  # (n, 1, 1)

    column0, row0 = np.rint(nuclei.x[chosen]).astype(np.int32), np.rint(nuclei.y[chosen]).astype(np.int32)
    offset = np.arange(-half, half + 1, dtype=np.int32)
    away = offset.astype(np.float32)
    dx = away[None, None, :] - (column(nuclei.x) - column0[:, None, None].astype(np.float32))
    dy = away[None, :, None] - (column(nuclei.y) - row0[:, None, None].astype(np.float32))
    cosine, sine = np.cos(column(nuclei.angle)), np.sin(column(nuclei.angle))
    u = (dx * cosine + dy * sine) / column(nuclei.length)
    v = (dy * cosine - dx * sine) / column(nuclei.width)
    r = np.sqrt(u * u + v * v)
    if look.wobble:
        r += 2 * look.wobble * np.sin(2.2 * u + uneven[0]) * np.sin(2.2 * v + uneven[1])
    cover = np.clip((1 - r) * column(nuclei.width) / 1.6 + 0.5, 0, 1)  # the edge is about a pixel and a half soft
    inner = np.minimum(r, 1.0)
    profile = 1 - look.rim * (1 - inner**4)
    if look.nucleolus:
        spot = (u - uneven[2]) ** 2 + (v - uneven[3]) ** 2
        profile = profile + look.nucleolus * np.exp(-spot / 0.045)
    return column(nuclei.darkness) * cover * profile, row0[:, None] + offset, column0[:, None] + offset

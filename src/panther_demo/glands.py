"""Glands: bent rings of tall cells around a lumen, their nuclei crowded near the base."""

from dataclasses import dataclass

import numpy as np

from panther_demo.area import Area
from panther_demo.noise import ramp
from panther_demo.nuclei import Look, Nuclei, nuclei_at

EPITHELIAL = Look(radius=9.0, spread=0.10, elongation=1.7, darkness=1.0, rim=0.2, wobble=0.05)
SPACING = 152.0  # pixels between glands
LAYERS = (0.86, 0.70)  # of the radius: two rows of nuclei, the second one loose


@dataclass(frozen=True)
class Glands:
    """Glands, all arrays (N,) but the bends; lengths in pixels."""

    x: np.ndarray
    y: np.ndarray
    radius: np.ndarray
    ratio: np.ndarray  # of the short axis to the long one
    turn: np.ndarray
    lumen: np.ndarray  # part of the radius
    bend: np.ndarray  # (N, 4): amplitude and phase of two waves around the rim


def gland_centres(rng: np.random.Generator, area: Area) -> Glands:
    """Glands of an area, far enough from each other not to overlap much."""
    points = area.points(rng, SPACING, 0.09, reach=28)
    n = len(points)
    bend = np.stack(
        [rng.uniform(0.02, 0.13, n), rng.uniform(0, 6.3, n), rng.uniform(0.01, 0.06, n), rng.uniform(0, 6.3, n)], 1
    )
    radius, ratio = rng.uniform(54, 84, n), rng.uniform(0.68, 1.0, n)
    turn, lumen = rng.uniform(0, np.pi, n), rng.uniform(0.22, 0.52, n)
    return Glands(points[:, 0], points[:, 1], radius, ratio, turn, lumen, bend)


def paint_glands(glands: Glands, h: np.ndarray, e: np.ndarray) -> np.ndarray:
    """Paint cytoplasm and lumina into concentrations (h, w); returns where glands are."""
    covered = np.zeros(h.shape, bool)
    reach = 96
    for i in range(len(glands.x)):
        top, left = max(int(glands.y[i]) - reach, 0), max(int(glands.x[i]) - reach, 0)
        box = slice(top, int(glands.y[i]) + reach), slice(left, int(glands.x[i]) + reach)
        y, x = np.ogrid[top : top + h[box].shape[0], left : left + h[box].shape[1]]
        r = _radius(glands, i, x - np.float32(glands.x[i]), y - np.float32(glands.y[i]))
        edge = 1 - ramp(r, 0.97, 1.02)
        depth = ramp(r, glands.lumen[i] - 0.03, glands.lumen[i] + 0.03)  # 0 in the lumen
        # cells are darker at their base, where the nuclei lie, and pale towards the lumen
        cytoplasm_e, cytoplasm_h = 0.36 - 0.10 * (1 - r), 0.10 + 0.12 * ramp(r, 0.5, 1.0)
        e[box] = e[box] * (1 - edge) + edge * (0.02 + (cytoplasm_e - 0.02) * depth)
        h[box] = h[box] * (1 - edge) + edge * (0.02 + (cytoplasm_h - 0.02) * depth)
        covered[box] |= r < 1.06
    return covered


def ring_nuclei(rng: np.random.Generator, glands: Glands) -> Nuclei:
    """Nuclei around every lumen, pointing at it."""
    points, angles = [np.empty((0, 2))], [np.empty(0)]
    for i in range(len(glands.x)):
        for layer, keep in zip(LAYERS, (1.0, 0.55), strict=True):
            count = int(2 * np.pi * glands.radius[i] * layer / 12.5)
            around = np.arange(count) * 2 * np.pi / count + rng.normal(0, 0.035, count)
            around = around[rng.uniform(size=count) < keep]
            out = glands.radius[i] * (layer + rng.normal(0, 0.03, len(around))) / _rim(glands, i, around)
            u, v = out * np.cos(around), out * np.sin(around) * glands.ratio[i]
            cosine, sine = np.cos(glands.turn[i]), np.sin(glands.turn[i])
            x, y = u * cosine - v * sine, u * sine + v * cosine
            points.append(np.stack([glands.x[i] + x, glands.y[i] + y], 1))
            angles.append(np.arctan2(y, x) + rng.normal(0, 0.15, len(x)))
    return nuclei_at(rng, np.concatenate(points), EPITHELIAL, np.concatenate(angles))


def _radius(glands: Glands, i: int, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Distance from the centre in units of the rim's."""
    cosine, sine = np.float32(np.cos(glands.turn[i])), np.float32(np.sin(glands.turn[i]))
    u, v = x * cosine + y * sine, (y * cosine - x * sine) / np.float32(glands.ratio[i])
    return np.sqrt(u * u + v * v) / np.float32(glands.radius[i]) * _rim(glands, i, np.arctan2(v, u))


def _rim(glands: Glands, i: int, around: np.ndarray) -> np.ndarray:
    a, p, b, q = glands.bend[i]
    return 1 + a * np.cos(2 * around + p) + b * np.cos(5 * around + q)

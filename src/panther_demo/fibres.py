"""Fibres of connective tissue: wavy pink bands that keep a direction, with clefts between them."""

from dataclasses import dataclass

import numpy as np

from panther_demo.area import Area
from panther_demo.layout import SCALE
from panther_demo.noise import enlarged, ramp, smooth_noise, strips


@dataclass(frozen=True)
class Fibres:
    """Fibres over an area."""

    eosin: np.ndarray  # (h, w)
    direction: np.ndarray  # (h / 8, w / 8), radians

    def angle_at(self, points: np.ndarray) -> np.ndarray:
        """Direction (N,) of the fibres at points (N, 2)."""
        column, row = np.floor(points / SCALE).astype(np.int64).T
        rows, columns = self.direction.shape
        return self.direction[np.clip(row, 0, rows - 1), np.clip(column, 0, columns - 1)]


def fibres(rng: np.random.Generator, area: Area, clefts: bool = True) -> Fibres:
    r"""Bands of constant :math:`v(x, y)`, a bent coordinate across the fibres, with ``clefts`` between some of them."""
    small = area.member.shape
    turn = rng.uniform(0, np.pi)
    y, x = np.mgrid[: small[0], : small[1]].astype(np.float32) * SCALE
    v = y * np.cos(turn) - x * np.sin(turn) + 34 * smooth_noise(rng, small, 26) + 7 * smooth_noise(rng, small, 8)
    down, across = np.gradient(v)
    full = enlarged(v, area.shape)
    phase = 1.6 * smooth_noise(rng, area.shape, 90)
    patches = smooth_noise(rng, area.shape, 70)
    gaps = smooth_noise(rng, area.shape, 40) if clefts else None
    eosin = np.empty(area.shape, np.float32)
    for rows in strips(area.shape):
        v, bent = full[rows], phase[rows]
        broad = np.sin(v * np.float32(2 * np.pi / 29) + bent)
        fine = np.sin(v * np.float32(2 * np.pi / 11.3) - 2 * bent)
        eosin[rows] = 0.36 + 0.08 * broad + 0.06 * fine + 0.05 * patches[rows]
        if gaps is not None:
            wave = np.sin(v * np.float32(2 * np.pi / 47) + 2 * bent) + 0.55 * gaps[rows]
            eosin[rows] *= 1 - 0.9 * ramp(wave, 1.0, 1.3)
    return Fibres(eosin, np.arctan2(-across, down))

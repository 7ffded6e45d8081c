"""Seven synthetic tissues as textures with nuclei, at 0.5 micrometres per pixel; they resemble H&E."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import ndimage
from scipy.spatial import cKDTree

from panther.registry import Nothing, Registry
from panther_demo.layout import SCALE, Layout, Shape, enlarged, ramp, scattered, smooth_noise, strips
from panther_demo.nuclei import Look, Nuclei, nuclei_at

MARGIN = 4  # mask pixels around the tissue, so that nuclei at its border are whole


@dataclass(frozen=True)
class Area:
    """A box of the slide with one tissue in it; points are x, y from the box's corner."""

    top: int  # level-0 pixels
    left: int
    member: np.ndarray  # (h / 8, w / 8) bool, where the tissue is
    weight: np.ndarray  # (h, w) float32, 0 to 1, soft at the border

    @property
    def shape(self) -> Shape:
        """Rows and columns of the box at level 0."""
        return self.weight.shape[0], self.weight.shape[1]

    @property
    def box(self) -> tuple[slice, slice]:
        """Rows and columns of the slide."""
        return slice(self.top, self.top + self.shape[0]), slice(self.left, self.left + self.shape[1])

    def points(self, rng: np.random.Generator, spacing: float, jitter: float = 0.3, reach: float = 0.0) -> np.ndarray:
        """Scattered points (N, 2) inside the tissue, at least ``reach`` pixels from its border."""
        points = scattered(rng, self.shape, spacing, jitter)
        return points[self.holds(points, reach)]

    def holds(self, points: np.ndarray, reach: float = 0.0) -> np.ndarray:
        """Which points (N, 2) lie in the tissue."""
        member = self.member
        if reach >= SCALE:
            member = ndimage.distance_transform_edt(np.pad(member, 1))[1:-1, 1:-1] * SCALE > reach
        column, row = (np.floor(points / SCALE).astype(np.int64)).T
        valid = (row >= 0) & (column >= 0) & (row < member.shape[0]) & (column < member.shape[1])
        inside = np.zeros(len(points), bool)
        inside[valid] = member[row[valid], column[valid]]
        return inside


@dataclass(frozen=True)
class Texture:
    """Result of a painter: concentrations between nuclei (h, w), and the nuclei."""

    haematoxylin: np.ndarray
    eosin: np.ndarray
    nuclei: tuple[Nuclei, ...] = ()


def area_of(layout: Layout, label: int) -> Area:
    """Box around a tissue of a slide."""
    member = layout.labels == label
    rows, columns = np.flatnonzero(member.any(1)), np.flatnonzero(member.any(0))
    top, left = max(rows[0] - MARGIN, 0), max(columns[0] - MARGIN, 0)
    box = slice(top, rows[-1] + 1 + MARGIN), slice(left, columns[-1] + 1 + MARGIN)
    member = member[box]
    shape = member.shape[0] * SCALE, member.shape[1] * SCALE
    # sharper than the mask's own pixels: at a border of two tissues the two ramps still add up to one
    weight = ramp(enlarged(layout.weight(label)[box], shape, smooth=False), 0.3, 0.7)
    return Area(int(top) * SCALE, int(left) * SCALE, member, weight)


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
    bounds = ((0.02, 0.13), (0, 6.3), (0.01, 0.06), (0, 6.3))
    bend = np.stack([rng.uniform(low, high, n) for low, high in bounds], 1)
    radius, ratio = rng.uniform(54, 84, n), rng.uniform(0.68, 1.0, n)
    turn, lumen = rng.uniform(0, np.pi, n), rng.uniform(0.22, 0.52, n)
    return Glands(points[:, 0], points[:, 1], radius, ratio, turn, lumen, bend)


def paint_glands(glands: Glands, h: np.ndarray, e: np.ndarray) -> np.ndarray:
    """Paint cytoplasm and lumina into concentrations (h, w); returns a mask of the glands."""
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


Painter = Callable[[np.random.Generator, Area], Texture]
tissues: Registry[Painter, Nothing] = Registry("tissue", Nothing)  # in the order of the mask's labels 1, 2, ...

# lengths in pixels of 0.5 um: a lymphocyte of 7 um has a radius of 7
PLEOMORPHIC = Look(radius=12.5, spread=0.24, elongation=1.2, darkness=0.92, rim=0.50, nucleolus=0.7, wobble=0.10)
SPINDLE = Look(radius=14.0, spread=0.22, elongation=4.2, darkness=0.85, rim=0.1, wobble=0.02)
LYMPHOCYTE = Look(radius=6.6, spread=0.09, elongation=1.06, darkness=1.35, wobble=0.04)
FLAT = Look(radius=8.0, spread=0.15, elongation=3.2, darkness=0.9)
GHOST = Look(radius=9.5, spread=0.2, elongation=1.2, darkness=0.20, rim=0.2, wobble=0.12)
DEBRIS = Look(radius=2.4, spread=0.45, elongation=1.2, darkness=0.9, wobble=0.15)
FLOATING = Look(radius=7.5, spread=0.2, elongation=1.3, darkness=0.85, rim=0.2)


@tissues.register("glandular tumour")
def glandular(rng: np.random.Generator, area: Area) -> Texture:
    """Glands: a lumen, a ring of tall cells with crowded nuclei near their base, fibres between the glands."""
    between = fibres(rng, area)
    h, e = np.full(area.shape, 0.03, np.float32), between.eosin.copy()
    glands = gland_centres(rng, area)
    covered = paint_glands(glands, h, e)
    points = area.points(rng, 42, 0.35)
    free = points[~_at(covered, points)]
    return Texture(h, e, (ring_nuclei(rng, glands), _spindles(rng, between, free)))


@tissues.register("solid tumour")
def solid(rng: np.random.Generator, area: Area) -> Texture:
    """Sheets of large cells with pleomorphic vesicular nuclei and nucleoli; hardly anything between them."""
    mottle = smooth_noise(rng, area.shape, 9)
    clouds = smooth_noise(rng, area.shape, 60)
    h = 0.16 + 0.03 * mottle + 0.03 * clouds
    e = 0.34 + 0.05 * mottle - 0.04 * clouds
    return Texture(h, e, (nuclei_at(rng, area.points(rng, 31, 0.2), PLEOMORPHIC),))


@tissues.register("stroma")
def stroma(rng: np.random.Generator, area: Area) -> Texture:
    """Wavy fibres and spindle nuclei along them."""
    bands = fibres(rng, area)
    h = np.full(area.shape, 0.02, np.float32)
    return Texture(h, bands.eosin, (_spindles(rng, bands, area.points(rng, 50, 0.4)),))


@tissues.register("lymphocytes")
def lymphocytes(rng: np.random.Generator, area: Area) -> Texture:
    """Small round dark nuclei, packed."""
    haze = smooth_noise(rng, area.shape, 14)
    h, e = 0.14 + 0.03 * haze, 0.13 + 0.03 * haze
    return Texture(h, e, (nuclei_at(rng, area.points(rng, 15.5, 0.17), LYMPHOCYTE),))


@tissues.register("adipose")
def adipose(rng: np.random.Generator, area: Area) -> Texture:
    """Large empty cells with thin walls, thicker where three meet; a flat nucleus in some walls."""
    centres = area.points(rng, 98, 0.13)
    half = area.shape[0] // 2, area.shape[1] // 2
    wanted = np.argwhere(enlarged(area.weight, half, smooth=False) > 0)
    gap = np.full(half, 30.0, np.float32)
    if len(centres) >= 3:
        bend = [5 * smooth_noise(rng, half, 30)[tuple(wanted.T)] for _ in range(2)]
        places = wanted[:, ::-1] * 2.0 + np.stack(bend, 1)
        near = cKDTree(centres).query(places, k=3)[0].astype(np.float32)  # (n, 3)
        # distance to the wall; smaller where a third cell is near too, so that corners are rounded
        gap[tuple(wanted.T)] = near[:, 1] - near[:, 0] - 10 * np.exp(-(near[:, 2] - near[:, 0]) / 9)
    wall = ramp(enlarged(gap, area.shape), 9.0, 4.5)
    e = 0.03 + 0.60 * wall * (1 + 0.2 * smooth_noise(rng, area.shape, 20))
    spots = area.points(rng, 60, 0.4)
    at_wall = _at(wall, spots) > 0.6
    return Texture(0.06 * wall, e, (nuclei_at(rng, spots[at_wall], FLAT),))


@tissues.register("necrosis")
def necrosis(rng: np.random.Generator, area: Area) -> Texture:
    """Smudged pink without structure, dust of broken nuclei in drifts, a few ghosts."""
    smudge = smooth_noise(rng, area.shape, 26)
    grain = 0.6 * smooth_noise(rng, area.shape, 5) + 0.6 * smooth_noise(rng, area.shape, 7.3)
    e = 0.50 + 0.09 * smudge + 0.07 * grain
    h = np.maximum(0.05 + 0.035 * grain, 0)
    dust = area.points(rng, 12, 0.5)
    drift = _at(smooth_noise(rng, area.shape, 70), dust)
    dust = dust[rng.uniform(size=len(dust)) < 0.45 * ramp(drift, -0.6, 1.6)]
    return Texture(h, e, (nuclei_at(rng, dust, DEBRIS), nuclei_at(rng, area.points(rng, 44, 0.35), GHOST)))


@tissues.register("mucin")
def mucin(rng: np.random.Generator, area: Area) -> Texture:
    """Pale blue-grey pools with faint strands; small groups of cells float in them."""
    strands = fibres(rng, area, clefts=False).eosin - 0.36  # flowing lines, far paler than fibres
    h = 0.29 + 0.02 * smooth_noise(rng, area.shape, 110) + 0.30 * strands
    e = np.full(area.shape, 0.05, np.float32)
    islands = area.points(rng, 190, 0.3, reach=16)
    cells = np.repeat(islands, 7, 0) + rng.normal(0, 11, (7 * len(islands), 2))
    return Texture(np.maximum(h, 0.08), e, (nuclei_at(rng, cells, FLOATING),))


def _spindles(rng: np.random.Generator, bands: Fibres, points: np.ndarray) -> Nuclei:
    return nuclei_at(rng, points, SPINDLE, bands.angle_at(points) + rng.normal(0, 0.12, len(points)))


def _at(field: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Values (N,) of a field (h, w) at points (N, 2); outside, those of the nearest pixel."""
    rows, columns = np.clip(points[:, ::-1].astype(int), 0, np.array(field.shape) - 1).T
    return field[rows, columns]

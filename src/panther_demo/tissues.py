"""Seven tissues as textures with nuclei, at 0.5 micrometres a pixel. Synthetic: they resemble H&E, they are none."""

from collections.abc import Callable

import numpy as np
from scipy.spatial import cKDTree

from panther.registry import Nothing, Registry
from panther_demo.area import Area, Texture
from panther_demo.fibres import Fibres, fibres
from panther_demo.glands import gland_centres, paint_glands, ring_nuclei
from panther_demo.noise import enlarged, ramp, smooth_noise
from panther_demo.nuclei import Look, Nuclei, nuclei_at

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
    """Values (N,) of a field (h, w) at points (N, 2); the nearest inside for those outside."""
    rows, columns = np.clip(points[:, ::-1].astype(int), 0, np.array(field.shape) - 1).T
    return field[rows, columns]

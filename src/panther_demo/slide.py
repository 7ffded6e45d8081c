"""One synthetic slide: layout, tissues, stain, folds and ink, as a pyramidal TIFF with a mask of the truth."""

import hashlib
import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from panther.store import atomic_write
from panther.version import __version__
from panther_demo.layout import GLASS, SCALE, Layout, Shape, enlarged, make_layout, ramp, smooth_noise, strips
from panther_demo.nuclei import paint
from panther_demo.stain import Stain, transmitted
from panther_demo.tissues import area_of, tissues

MPP = 0.5
TILE = 256
LEVELS = 3
QUALITY = 88  # of JPEG
DESCRIPTION = "SYNTHETIC: drawn by `panther demo`, not tissue of anybody; textures that resemble H&E."
INKS = ((40, 90, 190), (30, 130, 80), (20, 70, 140))


@dataclass(frozen=True)
class DrawnSlide:
    """Settings of a slide; small enough to send to another process."""

    name: str
    shares: tuple[float, ...]  # wanted, per tissue in the registry's order
    shape: Shape
    stain: Stain
    seed: tuple[int, ...]
    fold: bool = False
    pen: bool = False

    @property
    def description(self) -> str:
        """Description in the file, with a hash of the plan."""
        plan = json.dumps(asdict(self), default=np.ndarray.tolist, sort_keys=True)
        return f"{DESCRIPTION} Plan {hashlib.sha256(f'{__version__} {plan}'.encode()).hexdigest()[:16]}."


def draw(plan: DrawnSlide) -> tuple[np.ndarray, Layout]:
    """Picture (h, w, 3) and layout of the tissues."""
    rng = np.random.default_rng(plan.seed)
    layout = make_layout(rng, np.array(plan.shares), plan.shape)
    return painted(layout, plan, rng), layout


def painted(layout: Layout, plan: DrawnSlide, rng: np.random.Generator) -> np.ndarray:
    """Picture (h, w, 3) of the tissues of a layout."""
    h, e = np.zeros(layout.shape, np.float32), np.zeros(layout.shape, np.float32)
    for number, name in enumerate(tissues.names()):
        if plan.shares[number] > 0:
            _add(h, e, layout, number + 1, name, np.random.default_rng([*plan.seed, number + 1]))
    glass = enlarged(layout.weight(GLASS), layout.shape, smooth=False)
    for rows in strips(layout.shape):
        h[rows] *= 1 - ramp(glass[rows], 0.6, 0.95)  # nuclei at the rim are cut with the section
    if plan.fold:
        _fold(h, e, layout, rng)
    picture = transmitted(h, e, plan.stain, rng)
    return _inked(picture, rng) if plan.pen else picture


def write_slide(plan: DrawnSlide, slides: Path, truth: Path) -> np.ndarray:
    """Write `SLIDE.tif` and the truth `SLIDE.png` (a pixel is 8 x 8 of the slide's, 0 is glass); returns the true shares (T,).

    An existing slide of the same plan is kept, so that a killed run resumes.
    """
    file, mask = slides / f"{plan.name}.tif", truth / f"{plan.name}.png"
    if mask.is_file() and _is_drawn(file, plan.description):
        return Layout(np.asarray(Image.open(mask))).shares(len(plan.shares))
    picture, layout = draw(plan)
    write_drawn(plan, picture, layout, slides, truth)
    return layout.shares(len(plan.shares))


def write_drawn(plan: DrawnSlide, picture: np.ndarray, layout: Layout, slides: Path, truth: Path) -> None:
    """Write a picture and its truth."""
    with atomic_write(truth / f"{plan.name}.png") as temporary:
        Image.fromarray(layout.labels).save(temporary, format="png")
    _write_pyramid(slides / f"{plan.name}.tif", picture, plan.description)  # last, so that a slide has its truth


def _add(h: np.ndarray, e: np.ndarray, layout: Layout, label: int, name: str, rng: np.random.Generator) -> None:
    """Paint one tissue over its part of the slide."""
    area = area_of(layout, label)
    texture = tissues[name](rng, area)
    painted = np.zeros(area.shape, np.float32)
    for nuclei in texture.nuclei:
        paint(painted, nuclei, rng)
    chromatin = smooth_noise(rng, area.shape, 3)
    for rows in strips(area.shape):
        dark, weight = painted[rows] * (1 + 0.22 * chromatin[rows]), area.weight[rows]
        shown = np.minimum(dark, 1.0)
        h[area.box][rows] += weight * texture.haematoxylin[rows] * (1 - shown) + dark
        e[area.box][rows] += weight * np.maximum(texture.eosin[rows], 0) * (1 - 0.6 * shown)


def _fold(h: np.ndarray, e: np.ndarray, layout: Layout, rng: np.random.Generator) -> None:
    """Double the tissue along a bent line, as in a folded section."""
    shape = layout.shape
    centre = np.argwhere(layout.labels != GLASS).mean(0) * SCALE
    turn, aside = rng.uniform(0, np.pi), rng.uniform(-0.2, 0.2) * min(shape)
    y, x = np.ogrid[: shape[0], : shape[1]]
    down, across = (y - centre[0]) * np.cos(turn) + aside, (x - centre[1]) * np.sin(turn)
    distance = down.astype(np.float32) - across.astype(np.float32) + 45 * smooth_noise(rng, shape, 500)
    factor = 1 + 0.8 * ramp(np.abs(distance), 16, 10)
    h *= factor
    e *= factor


def _inked(picture: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Add a stroke of a felt pen near an edge, as pathologists mark slides."""
    turns = int(rng.integers(4))
    turned = np.rot90(picture, turns).copy()  # the stroke is drawn near the top
    rows, columns = turned.shape[:2]
    start = int(rng.uniform(0.05, 0.3) * columns)
    x = np.arange(start, start + int(rng.uniform(0.3, 0.5) * columns))
    middle = 0.06 * rows + 0.02 * rows * np.sin(x / columns * rng.uniform(5, 9) + rng.uniform(0, 6))
    half = 0.014 * rows * np.sqrt(np.minimum(1, np.minimum(x - x[0], x[-1] - x) / (0.014 * rows)))  # round ends
    inside = np.abs(np.arange(int(0.12 * rows))[:, None] - middle) < half
    ink = np.array(INKS[rng.integers(len(INKS))], np.float32) / 255
    band = turned[: inside.shape[0], x[0] : x[-1] + 1]
    band[inside] = band[inside] * (0.15 + 0.85 * ink)  # ink lets through its own colour
    return np.ascontiguousarray(np.rot90(turned, -turns))


def _is_drawn(path: Path, description: str) -> bool:
    import tifffile

    with suppress(OSError, ValueError), tifffile.TiffFile(path) as file:  # no file, or no TIFF
        return bool(file.pages.first.description == description)
    return False


def _write_pyramid(path: Path, picture: np.ndarray, description: str) -> None:
    import tifffile

    with atomic_write(path) as temporary, tifffile.TiffWriter(temporary, bigtiff=True) as file:
        level = Image.fromarray(picture)
        for number in range(LEVELS):
            per_cm = 1e4 / (MPP * 2**number)
            file.write(
                np.asarray(level),
                tile=(TILE, TILE),
                photometric="rgb",
                compression="jpeg",
                compressionargs={"level": QUALITY},
                subfiletype=int(number > 0),
                resolution=(per_cm, per_cm),
                resolutionunit="CENTIMETER",
                description=description,
                metadata=None,
                software=False,
            )
            level = level.reduce(2)

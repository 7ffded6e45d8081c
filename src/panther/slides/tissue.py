"""Tissue of a slide, segmented at a few um/px; lengths are in micrometres.

The default looks for *colour*: stained tissue absorbs one colour more than another, while glass, grey stitching frames, black borders,
dust and shadows absorb all colours equally. Otsu's threshold, kept within limits, also holds for slides that are all tissue or all glass.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

import numpy as np
from scipy import ndimage

from panther.errors import InputError, check_number
from panther.registry import Nothing, Registry
from panther.slides.polygons import Polygon, Tissue, trace
from panther.slides.slide import Overview, Slide, overview

BLACK = 70  # of 255; the darkest stained nuclei at a few um/px are brighter in at least one colour
CORE = 24.0  # um; paler ink counts within this distance of strong ink
# hue from, hue to (degrees), saturation of strong ink, of its rim. Haematoxylin lies at 240-290, eosin at 310-350, DAB at 15-40.
INKS = (
    (65.0, 175.0, 0.20, 0.08),  # green
    (175.0, 238.0, 0.42, 0.15),  # turquoise, blue
    (352.0, 10.0, 0.78, 0.45),  # red; blood is less saturated
)


@dataclass(frozen=True)
class TissueSettings:
    """Settings of the segmentation; lengths in micrometres, areas in square micrometres."""

    method: str = "colour"
    mpp: float = 8.0  # resolution of the segmentation, 1 to 64 um/px
    smooth: float = 4.0  # standard deviation of the blur that removes noise of the camera and of JPEG
    lowest: float = 0.04  # limits of Otsu's threshold, in optical density (chroma), 0 to 2
    highest: float = 0.10
    close: float = 24.0  # gaps up to twice this are bridged
    open: float = 6.0  # threads thinner than twice this are dropped
    min_area: float = 10_000.0  # smaller regions are dropped
    max_hole: float = 10_000.0  # smaller holes are filled: lumina, fat cells (about 8,000)
    min_artefact: float = 500_000.0  # black regions from this size on are ink or border, smaller ones pigment
    pen: bool = True  # look for ink; turn it off for green or blue stains

    LIMITS: ClassVar = {"mpp": (1.0, 64.0), "lowest": (0.0, 2.0), "highest": (0.0, 2.0)}  # of others: 0, infinity

    def __post_init__(self) -> None:
        if not isinstance(self.pen, bool):
            raise InputError(f"pen: found {self.pen!r}, expected true or false")
        for name, value in asdict(self).items():
            if name not in ("method", "pen"):
                low, high = self.LIMITS.get(name, (0.0, math.inf))
                check_number(name, value, low)
                if value > high:
                    raise InputError(f"{name}: found {value:g}, expected at most {high:g}")
                object.__setattr__(self, name, float(value))  # 5000 and 5000.0 have one hash
        if self.lowest > self.highest:
            raise InputError(f"lowest: found {self.lowest:g}, expected at most highest={self.highest:g}")

    @classmethod
    def of(cls, method: str, values: Mapping[str, Any]) -> "TissueSettings":
        """Settings from names and values; an unknown name is refused."""
        defaults = {field.name: field.default for field in fields(cls) if field.name != "method"}
        if unknown := [name for name in values if name not in defaults]:
            names = ", ".join(f"{key}={json.dumps(default)}" for key, default in defaults.items())
            raise InputError(f"tissue setting: found {unknown[0]!r}, expected one of {names}")
        return cls(method, **values)

    @property
    def summary(self) -> str:
        """The method and the settings that differ from the defaults."""
        default = asdict(TissueSettings(self.method))
        changed = {name: value for name, value in asdict(self).items() if value != default[name]}
        return " ".join([self.method, *(f"{k}={str(v).lower().removesuffix('.0')}" for k, v in changed.items())])


Segmenter = Callable[[np.ndarray, float, TissueSettings], np.ndarray]  # rgb (h, w, 3), um per pixel -> mask (h, w)
segmenters: Registry[Segmenter, Nothing] = Registry("tissue segmenter", Nothing)


def find_tissue(slide: Slide, settings: TissueSettings | None = None) -> Tissue:
    """Tissue of a slide, as polygons in level-0 pixels."""
    return segment(slide, settings or TissueSettings())[0]


def segment(slide: Slide, settings: TissueSettings) -> tuple[Tissue, Overview]:
    """Tissue and the overview that it was found on; pixels that could not be read are no tissue."""
    small = overview(slide, max(1.0, settings.mpp / slide.mpp))
    height, width = small.unread.shape
    scale = slide.dimensions[0] / width, slide.dimensions[1] / height
    mask = segmenters[settings.method](small.image, slide.mpp * scale[0], settings) & ~small.unread
    return Tissue(tuple(scaled(polygon, scale) for polygon in trace(mask))), small


@segmenters.register("colour")
def colour(image: np.ndarray, mpp: float, settings: TissueSettings) -> np.ndarray:
    """Mask (h, w) of the coloured pixels that are no ink."""
    artefact = black(image, mpp, settings.min_artefact)
    if settings.pen:
        artefact = artefact | pen_marks(image, mpp)
    score = chroma(image, settings.smooth / mpp)
    threshold = settings.highest
    if not artefact.all():
        threshold = np.clip(otsu(score[~artefact]), settings.lowest, settings.highest)
    mask = (score > threshold) & ~artefact
    pixel = mpp**2  # um2
    mask = fill_small_holes(closed(mask, settings.close / mpp), settings.max_hole / pixel)  # gaps, then holes
    mask = opened(drop_small(mask, settings.min_area / pixel), settings.open / mpp)  # small regions, then threads
    return drop_small(mask & ~artefact, settings.min_area / pixel)


def chroma(image: np.ndarray, sigma: float) -> np.ndarray:
    r"""Difference of the largest and the smallest optical density of the three colours, (h, w).

    .. math:: OD_k = -\log_{10} (I_k / W_k), \quad \text{chroma} = \max_k OD_k - \min_k OD_k

    W is the colour of the glass, so that a yellowish lamp is no stain. Grey has no chroma.
    """
    smooth = np.stack([ndimage.gaussian_filter(image[..., k], sigma, output=np.float32) for k in range(3)])
    # below 40 of 255 colours are mostly noise of the camera; a floor keeps their ratio near 1
    density = -np.log10(np.maximum(smooth, 40.0) / white_of(image)[:, None, None])
    return density.max(0) - density.min(0)


def white_of(image: np.ndarray) -> np.ndarray:
    """Colour of empty glass (3,): median of the bright pixels with little colour; white where less than 0.5 % are."""
    low, high = image.min(-1), image.max(-1)
    glass = (low >= 200) & (high - low <= 24)
    if glass.mean() < 0.005:
        return np.full(3, 255.0, np.float32)
    # stitching software fills in pure white where nothing was scanned
    scanned = glass & (low < 255)
    return np.median(image[scanned if scanned.mean() > 0.005 else glass], 0).astype(np.float32)


def otsu(values: np.ndarray) -> float:
    r"""Threshold that separates two classes best, :math:`\max_t w_0(t) w_1(t) (\mu_0(t) - \mu_1(t))^2`, over 256 bins."""
    counts, borders = np.histogram(values, 256)
    middle = (borders[:-1] + borders[1:]) / 2
    below = np.cumsum(counts)
    above = below[-1] - below
    total = np.cumsum(counts * middle)
    valid = (below > 0) & (above > 0)
    gap = total[valid] / below[valid] - (total[-1] - total[valid]) / above[valid]
    between = below[valid] * 1.0 * above[valid] * gap**2
    return float(borders[1:][valid][np.argmax(between)]) if valid.any() else float(borders[-1])


def scaled(polygon: Polygon, scale: tuple[float, float]) -> Polygon:
    """Polygon in whole level-0 pixels."""
    outer, *holes = (np.rint(ring * scale).astype(np.int64) for ring in polygon.rings)
    return Polygon(outer, tuple(holes))


def black(image: np.ndarray, mpp: float, min_area: float) -> np.ndarray:
    """Black regions (h, w) that touch the border of the image or are as large as a pen's stroke.

    Smaller ones amid tissue are pigment (carbon in lungs, melanin) and stay.
    """
    dark = image.max(-1) < BLACK
    labels, _ = ndimage.label(dark)
    out = np.bincount(labels.ravel()) >= min_area / mpp**2
    for edge in (labels[0], labels[-1], labels[:, 0], labels[:, -1]):
        out[edge] = True
    out[0] = False
    # the rim of a border is a mixture of black and white: grey, and coloured where JPEG has smeared it
    return within(out[labels], 3 * 4.0 / mpp)


def pen_marks(image: np.ndarray, mpp: float) -> np.ndarray:
    """Ink of green, blue, turquoise or red pens (h, w): hues and saturations that stains do not have.

    Strong ink is found first, then its paler rim.
    """
    strong = np.zeros(image.shape[:2], bool)
    pale = np.zeros(image.shape[:2], bool)
    for top in range(0, len(image), 512):  # in bands: hues of a whole slide would take a gigabyte
        band = slice(top, top + 512)
        hue, saturation, value = _hsv(image[band])
        for low, high, core, rim in INKS:
            inside = (hue >= low) & (hue <= high) if low < high else (hue >= low) | (hue <= high)
            strong[band] |= inside & (saturation > core) & (value > 40)
            pale[band] |= inside & (saturation > rim)
    strong = ndimage.binary_opening(strong, iterations=1)  # single pixels are noise
    if not strong.any():
        return strong
    return within((pale & within(strong, CORE / mpp)) | strong, 2 * 4.0 / mpp)


def _hsv(image: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Hue in degrees, saturation 0 to 1, value 0 to 255, each (h, w)."""
    r, g, b = (image[..., k].astype(np.float32) for k in range(3))
    value = np.maximum(np.maximum(r, g), b)
    spread = value - np.minimum(np.minimum(r, g), b)
    safe = np.maximum(spread, 1e-6)
    hue = np.where(value == r, (g - b) / safe, np.where(value == g, 2 + (b - r) / safe, 4 + (r - g) / safe))
    return (60 * hue) % 360, spread / np.maximum(value, 1), value


def within(mask: np.ndarray, radius: float) -> np.ndarray:
    """Dilation of the mask with a disc of that ``radius``.

    A disc is a stack of rows: each row's width is one running maximum, and the rows are shifted and joined. For the small radii
    here that is several times faster than a distance transform.
    """
    if radius < 1 or not mask.any():
        return mask.copy()
    out = np.zeros_like(mask)
    bits = mask.view(np.uint8)
    reach = int(radius)
    widths = [int(np.sqrt(radius * radius - dy * dy)) for dy in range(reach + 1)]
    for width in sorted(set(widths)):
        row = ndimage.maximum_filter1d(bits, 2 * width + 1, axis=1, mode="constant").view(bool) if width else mask
        for dy in (dy for dy, other in enumerate(widths) if other == width and dy < len(mask)):
            out[dy:] |= row[: len(mask) - dy]
            out[: len(mask) - dy] |= row[dy:]
    return out


def closed(mask: np.ndarray, radius: float) -> np.ndarray:
    """Closing with a disc; the mask is continued beyond the border."""
    margin = 2 * int(radius) + 2
    wide = np.pad(mask, margin, mode="edge")
    grown = within(wide, radius)
    return ~within(~grown, radius)[margin:-margin, margin:-margin]


def opened(mask: np.ndarray, radius: float) -> np.ndarray:
    """Opening with a disc; the mask is continued beyond the border, so the border erodes nothing."""
    margin = int(radius) + 1
    wide = np.pad(mask, margin, mode="edge")
    kept = ~within(~wide, radius)
    return (within(kept, radius) & wide)[margin:-margin, margin:-margin]


def drop_small(mask: np.ndarray, pixels: float) -> np.ndarray:
    """Mask without regions of fewer pixels."""
    labels, _ = ndimage.label(mask)
    keep = np.bincount(labels.ravel()) >= pixels
    keep[0] = False
    return keep[labels]


def fill_small_holes(mask: np.ndarray, pixels: float) -> np.ndarray:
    """Mask with holes of fewer pixels filled; a gap that touches the border is no hole."""
    labels, _ = ndimage.label(~mask, np.ones((3, 3), int))
    fill = np.bincount(labels.ravel()) < pixels
    fill[np.unique(np.concatenate([labels[0], labels[-1], labels[:, 0], labels[:, -1]]))] = False
    fill[0] = True  # the mask itself
    return fill[labels]

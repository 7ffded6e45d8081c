"""Tissue: which parts of a slide hold stained tissue. Everything is in micrometres and happens at a few um/px.

The default looks for *colour*: stained tissue absorbs one colour more than another, while glass, grey stitching frames, black borders,
dust and shadows absorb all alike. Otsu's threshold on that, kept within limits, survives slides that are all tissue or all glass.
"""

from collections.abc import Callable

import numpy as np
from scipy import ndimage

from panther.registry import Nothing, Registry
from panther.slides.artefacts import black, pen_marks
from panther.slides.morphology import closed, drop_small, fill_small_holes, opened
from panther.slides.overview import Overview, overview
from panther.slides.polygons import Polygon, Tissue, trace
from panther.slides.slide import Slide
from panther.slides.tissue_settings import TissueSettings

Segmenter = Callable[[np.ndarray, float, TissueSettings], np.ndarray]  # rgb (h, w, 3), um per pixel -> mask (h, w)
segmenters: Registry[Segmenter, Nothing] = Registry("tissue segmenter", Nothing)


def find_tissue(slide: Slide, settings: TissueSettings | None = None) -> Tissue:
    """Tissue of a slide, as polygons in level-0 pixels."""
    return segment(slide, settings or TissueSettings())[0]


def segment(slide: Slide, settings: TissueSettings) -> tuple[Tissue, Overview]:
    """Tissue and the small picture that it was found on; what the file could not give is no tissue."""
    seen = overview(slide, max(1.0, settings.mpp / slide.mpp))
    height, width = seen.unread.shape
    scale = slide.dimensions[0] / width, slide.dimensions[1] / height
    mask = segmenters[settings.method](seen.image, slide.mpp * scale[0], settings) & ~seen.unread
    regions = (Polygon(*_scaled(polygon, scale)) for polygon in trace(mask))
    return Tissue(tuple(regions)), seen


@segmenters.register("colour")
def colour(image: np.ndarray, mpp: float, settings: TissueSettings) -> np.ndarray:
    """Mask (h, w) of what is coloured and no ink."""
    dark = black(image, mpp, settings.min_artefact)
    ink = pen_marks(image, mpp) if settings.pen else np.zeros_like(dark)
    score = chroma(image, settings.smooth / mpp)
    score[dark | ink] = 0.0
    looked_at = score[~(dark | ink)]
    threshold = np.clip(otsu(looked_at), settings.lowest, settings.highest) if looked_at.size else settings.highest
    mask = score > threshold
    mask = tidy(mask, mpp, settings) & ~(dark | ink)
    return drop_small(mask, settings.min_area / mpp**2)


def chroma(image: np.ndarray, sigma: float) -> np.ndarray:
    r"""Difference of the largest and the smallest optical density of the three colours, (h, w).

    .. math:: OD_k = -\log_{10} (I_k / W_k), \quad \text{chroma} = \max_k OD_k - \min_k OD_k

    W is the colour of the glass, so that a yellowish lamp is no stain. Grey has no chroma, however dark.
    """
    smooth = np.stack([ndimage.gaussian_filter(image[..., k], sigma, output=np.float32) for k in range(3)])
    # below 40 of 255 colours are mostly noise of the camera; a floor keeps their ratio near 1
    density = -np.log10(np.maximum(smooth, 40.0) / white_of(image)[:, None, None])
    return density.max(0) - density.min(0)


def white_of(image: np.ndarray) -> np.ndarray:
    """Colour of empty glass (3,): median of the bright pixels with little colour; white where there are hardly any."""
    low, high = image.min(-1), image.max(-1)
    glass = (low >= 200) & (high - low <= 24)
    if glass.mean() < 0.005:
        return np.full(3, 255.0, np.float32)
    # pure white is what a stitcher fills in where nothing was scanned
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


def tidy(mask: np.ndarray, mpp: float, settings: TissueSettings) -> np.ndarray:
    """Bridge gaps, drop threads, drop small regions, fill small holes."""
    mask = closed(mask, settings.close / mpp)
    mask = drop_small(fill_small_holes(mask, settings.max_hole / mpp**2), settings.min_area / mpp**2)
    return opened(mask, settings.open / mpp)


def _scaled(polygon: Polygon, scale: tuple[float, float]) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
    """Rings in whole level-0 pixels."""
    outer, *holes = (np.rint(ring * scale).astype(np.int64) for ring in polygon.rings)
    return outer, tuple(holes)

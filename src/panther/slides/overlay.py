"""Contours drawn over a thumbnail, for eyes."""

import numpy as np
from PIL import Image, ImageDraw

from panther.slides.polygons import Polygon, Tissue

OUTLINE, HOLE, IGNORED = (0, 158, 115), (0, 114, 178), (213, 94, 0)  # Okabe and Ito's green, blue and vermilion
WIDTH = 3  # pixels


def draw_contours(picture: np.ndarray, tissue: Tissue, scale: tuple[float, float]) -> np.ndarray:
    """Picture (h, w, 3) with regions outlined in green, their holes in blue, ignored regions in orange."""
    image = Image.fromarray(picture.copy())
    draw = ImageDraw.Draw(image)
    for polygon in tissue.regions:
        _outline(draw, polygon, scale, OUTLINE, HOLE)
    for polygon in tissue.ignored:
        _outline(draw, polygon, scale, IGNORED, IGNORED)
    return np.asarray(image)


def _outline(
    draw: ImageDraw.ImageDraw,
    polygon: Polygon,
    scale: tuple[float, float],
    outer: tuple[int, int, int],
    hole: tuple[int, int, int],
) -> None:
    for ring, colour in zip(polygon.rings, (outer, *(hole for _ in polygon.holes)), strict=True):
        points = [tuple(point) for point in (ring * scale).tolist()]
        draw.line([*points, points[0]], fill=colour, width=WIDTH)

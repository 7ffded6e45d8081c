"""Tissue as polygons with holes: traced from a mask along pixel edges and filled again, both exactly; as GeoJSON and in pictures.

QuPath opens the GeoJSON files; those that it has edited or written are read.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw
from scipy import ndimage

from panther.errors import InputError, listed
from panther.storage.geojson import NOT_GEOJSON, GeoJson, annotation, read_geojson, write_geojson
from panther.store import hash_of

IGNORE = "Ignore*"  # QuPath's class of regions to leave out
TISSUE = "Tissue"  # class of regions to add
ANNOTATIONS = "annotations"  # folder of a job, with one GeoJSON per slide, which the viewer writes
OUTLINE, HOLE, IGNORED = (0, 158, 115), (0, 114, 178), (213, 94, 0)  # Okabe and Ito's green, blue and vermilion
WIDTH = 3  # pixels of a drawn outline


@dataclass(frozen=True)
class Polygon:
    """An outer ring and its holes; rings are (n, 2) corners x, y, not closed."""

    outer: np.ndarray
    holes: tuple[np.ndarray, ...] = ()

    @property
    def rings(self) -> tuple[np.ndarray, ...]:
        """Outer ring first."""
        return (self.outer, *self.holes)

    @property
    def area(self) -> float:
        """Area without the holes."""
        return abs(ring_area(self.outer)) - sum(abs(ring_area(hole)) for hole in self.holes)


@dataclass(frozen=True)
class Tissue:
    """Tissue of a slide in level-0 pixels; ignored regions are cut out of it."""

    regions: tuple[Polygon, ...]
    ignored: tuple[Polygon, ...] = ()

    @property
    def area(self) -> float:
        """Sum of the regions' areas in square level-0 pixels; exact where they do not overlap, as traced ones."""
        return sum(region.area for region in self.regions)


def ring_area(ring: np.ndarray) -> float:
    r"""Shoelace formula, :math:`\frac{1}{2} \sum_i x_i y_{i+1} - x_{i+1} y_i`; positive for clockwise rings on the screen."""
    x, y = ring[:, 0].astype(float), ring[:, 1].astype(float)
    return float(np.sum(x * np.roll(y, -1) - np.roll(x, -1) * y) / 2)


def trace(mask: np.ndarray) -> list[Polygon]:
    """Polygons around the 4-connected regions of a mask (h, w), corners on pixel corners: an area is a number of pixels.

    Edges between tissue and background are walked with the tissue on the right. Where two pixels of tissue touch at a corner only,
    the walk turns right if they belong to two regions, to stay in its region; it turns left if they belong to one, so that what they
    enclose becomes a hole. So no ring meets itself, and a hole meets another ring in single corners at most: valid polygons (OGC).
    """
    labels, count = ndimage.label(mask)
    if count == 0:
        return []
    corner, direction, owner = _edges(np.pad(mask, 1), np.pad(labels, 1))
    following = _following(corner, direction, owner, mask.shape[1] + 3)
    outer: dict[int, np.ndarray] = {}
    holes: dict[int, list[np.ndarray]] = {}
    for walk in _cycles(following):
        turns = direction[walk] != direction[np.roll(walk, 1)]  # leaves out corners within a straight line
        ring, region = corner[walk][turns] - 1, int(owner[walk[0]])  # -1: the padding
        if ring_area(ring) > 0:
            outer[region] = ring
        else:
            holes.setdefault(region, []).append(ring)
    return [Polygon(outer[region], tuple(holes.get(region, ()))) for region in sorted(outer)]


def rasterise(tissue: Tissue, size: tuple[int, int], scale: float) -> np.ndarray:
    """Mask (h, w) of the pixels whose centre lies in the tissue; a pixel is ``scale`` level-0 pixels wide."""
    return _union(tissue.regions, size, scale) & ~_union(tissue.ignored, size, scale)


def _union(polygons: Iterable[Polygon], size: tuple[int, int], scale: float) -> np.ndarray:
    width, height = size
    mask = np.zeros((height, width), bool)
    for polygon in polygons:
        points = np.concatenate(polygon.rings) / scale
        left, top = np.floor(np.clip(points.min(0), 0, size)).astype(int)
        right, bottom = np.ceil(np.clip(points.max(0), 0, size)).astype(int)
        if left < right and top < bottom:
            part = _fill(polygon, (left, top, right, bottom), scale)
            mask[top:bottom, left:right] |= part
    return mask


def _fill(polygon: Polygon, box: tuple[int, int, int, int], scale: float) -> np.ndarray:
    """Even-odd rule at pixel centres: every edge flips the pixels to its right in each row that it crosses."""
    left, top, right, bottom = box
    flips = np.zeros((bottom - top, right - left + 1), np.int32)
    for ring in polygon.rings:
        a = ring / scale - (left, top)
        b = np.roll(a, -1, 0)
        low, high = np.minimum(a[:, 1], b[:, 1]), np.maximum(a[:, 1], b[:, 1])
        first = np.clip(np.ceil(low - 0.5), 0, len(flips)).astype(np.int64)  # rows whose centre lies in [low, high)
        last = np.clip(np.ceil(high - 0.5), 0, len(flips)).astype(np.int64)
        count = last - first
        edge = np.repeat(np.arange(len(a)), count)
        row = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count) + first[edge]
        slope = (b[edge, 0] - a[edge, 0]) / (b[edge, 1] - a[edge, 1])
        x = a[edge, 0] + (row + 0.5 - a[edge, 1]) * slope
        column = np.clip(np.ceil(x - 0.5), 0, right - left).astype(np.int64)
        np.add.at(flips, (row, column), 1)
    return (np.cumsum(flips, 1)[:, :-1] & 1).astype(bool)


def _edges(mask: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Directed pixel edges: start corner (x, y), direction (0 right, 1 down, 2 left, 3 up), label of the tissue on the right."""
    down = np.diff(mask.astype(np.int8), axis=0)  # down[r, c]: between rows r and r + 1
    across = np.diff(mask.astype(np.int8), axis=1)
    parts = []
    for direction, (change, sign) in enumerate(((down, 1), (across, -1), (down, -1), (across, 1))):
        r, c = np.nonzero(change == sign)
        start, pixel = {
            0: ((c, r + 1), (r + 1, c)),  # tissue below: to the right along its top
            1: ((c + 1, r), (r, c)),  # tissue on the left: down along its right side
            2: ((c + 1, r + 1), (r, c)),  # tissue above: to the left along its bottom
            3: ((c + 1, r + 1), (r, c + 1)),  # tissue on the right: up along its left side
        }[direction]
        parts.append((np.stack(start, 1), np.full(len(r), direction), labels[pixel]))
    corner, heading, owner = (np.concatenate(part) for part in zip(*parts, strict=True))
    return corner, heading, owner


def _following(corner: np.ndarray, direction: np.ndarray, owner: np.ndarray, stride: int) -> np.ndarray:
    """Next edge of each edge: the only one, or of two (pixels touch at a corner) the one described in `trace`."""
    moves = np.array([(1, 0), (0, 1), (-1, 0), (0, -1)])
    keys = (corner[:, 1] * stride + corner[:, 0]) * 4 + direction
    order = np.argsort(keys)
    ordered = keys[order]
    end = corner + moves[direction]
    base = (end[:, 1] * stride + end[:, 0]) * 4
    following = np.full(len(keys), -1)
    for turn in (1, 0, 3):  # right, straight on, left
        key = base + (direction + turn) % 4
        position = np.minimum(np.searchsorted(ordered, key), len(ordered) - 1)
        candidate = order[position]
        match = (ordered[position] == key) & ((following < 0) | ((turn == 3) & (owner[candidate] == owner)))
        following[match] = candidate[match]
    return following


def _cycles(following: np.ndarray) -> Iterable[np.ndarray]:
    """Closed walks, in the order of their first edge."""
    successor = following.tolist()
    for start in range(len(successor)):
        walk, edge = [], start
        while successor[edge] >= 0:
            walk.append(edge)
            successor[edge], edge = -1, successor[edge]
        if walk:
            yield np.array(walk)


@dataclass(frozen=True)
class Contours:
    """Content of a GeoJSON file of tissue."""

    tissue: Tissue
    digest: str  # of the features
    about: Mapping[str, Any]  # the settings that made it; empty for the user's file
    edited: bool  # True: the user's, which is used and not segmented again

    @property
    def regions(self) -> str | None:
        """Class of annotations that `panther slides --regions` took them from ("all": of any); None for other contours."""
        return self.about.get("regions")


def write_contours(path: Path, tissue: Tissue, about: Mapping[str, Any] | None = None) -> Contours:
    """Write a FeatureCollection. Its member `panther` has ``about`` and a hash, to detect edits; without it, it is the user's file."""
    regions = enumerate(tissue.regions, 1)
    features = [annotation(region.rings, f"tissue {i}", TISSUE, HOLE) for i, region in regions]
    ignored = enumerate(tissue.ignored, 1)
    features += [annotation(region.rings, f"ignored {i}", IGNORE, IGNORED) for i, region in ignored]
    digest = hash_of(features)
    member = None if about is None else {**about, "content": digest}
    write_geojson(path, features, member)
    return Contours(tissue, digest, member or {}, edited=about is None or "regions" in about)


def _read(path: Path) -> tuple[GeoJson, list[tuple[str | None, Polygon]]]:
    """A GeoJSON file, and the class of each of its polygons."""
    try:
        content = read_geojson(path)
    except NOT_GEOJSON as error:
        raise InputError(f"{path}: not a GeoJSON of polygons in level-0 pixels ({error})") from error
    return content, [(group, Polygon(outer, tuple(holes))) for group, (outer, *holes) in content.polygons]


def read_contours(path: Path) -> Contours:
    """Read polygons of any class; those of the class `Ignore*` are cut out."""
    content, polygons = _read(path)
    regions = tuple(polygon for group, polygon in polygons if group != IGNORE)
    ignored = tuple(polygon for group, polygon in polygons if group == IGNORE)
    digest = hash_of(content.features)
    about = dict(content.panther) if content.panther.get("content") == digest else {}
    return Contours(Tissue(regions, ignored), digest, about, edited=not about or "regions" in about)


def read_regions(path: Path, group: str | None = None) -> Tissue:
    """Annotations of the class ``group`` (None: of any), in capital or small letters; those of the class `Ignore*` are cut out."""
    _, polygons = _read(path)
    ignored = tuple(polygon for kind, polygon in polygons if kind == IGNORE)
    wanted = [(kind or "", p) for kind, p in polygons if kind != IGNORE or group is not None]
    chosen = tuple(p for kind, p in wanted if group is None or kind.casefold() == group.casefold())
    if not chosen:
        kinds = listed(sorted({kind or "none" for kind, _ in polygons}), 6) or "no polygons"
        raise InputError(f"{path}: found the classes {kinds}, expected {group or 'regions'}")
    return Tissue(chosen, ignored)


def with_edits(contours: Contours, path: Path) -> Contours:
    """Contours with the areas of a slide's annotations: those of the class Tissue are added, then those of Ignore* are cut out."""
    if not path.exists():
        return contours
    edits = [(group, polygon) for group, polygon in _read(path)[1] if group in (TISSUE, IGNORE)]
    if not edits:
        return contours
    added, ignored = (tuple(polygon for group, polygon in edits if group == kind) for kind in (TISSUE, IGNORE))
    tissue = Tissue((*contours.tissue.regions, *added), (*contours.tissue.ignored, *ignored))
    corners = [(group, *(ring.tolist() for ring in polygon.rings)) for group, polygon in edits]
    return replace(contours, tissue=tissue, digest=hash_of([contours.digest, corners]))


def draw_contours(picture: np.ndarray, tissue: Tissue, scale: tuple[float, float]) -> np.ndarray:
    """Picture (h, w, 3) with regions outlined in green, their holes in blue, ignored regions in orange."""
    image = Image.fromarray(picture.copy())
    draw = ImageDraw.Draw(image)
    outlines = [
        *((ring, OUTLINE if ring is region.outer else HOLE) for region in tissue.regions for ring in region.rings),
        *((ring, IGNORED) for region in tissue.ignored for ring in region.rings),
    ]
    for ring, colour in outlines:
        points = [tuple(point) for point in (ring * scale).tolist()]
        draw.line([*points, points[0]], fill=colour, width=WIDTH)
    return np.asarray(image)

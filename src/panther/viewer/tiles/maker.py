"""Tiles on demand, with a cache."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from panther.errors import InputError
from panther.explain.scene import MapSettings
from panther.slides import open_slide
from panther.slides.polygons import ANNOTATIONS, Tissue, read_contours, with_edits
from panther.store import Version, version_of
from panther.viewer.contents import SlideEntry
from panther.viewer.patches import Cells, PatchMap, Pyramid, Window
from panther.viewer.queries import LARGEST_PATCH, LayerOptions, SquareQuery
from panther.viewer.tiles import render
from panther.viewer.tiles.layers import Layer, Layers, Painted
from panther.viewer.workbench import RESOLUTIONS, LruCache, UnknownError, Workbench, check_image

TILES = 128 << 20  # bytes of finished tiles: some six thousand of the image
PAINTED = 16  # layers whose colours are kept
OVERVIEWS = 4  # of slides without a pyramid, 12 MB each
OUTLINES = 64  # slides whose outline is kept

GRID = Layer("grid", "Patch borders", "lines")
OUTLINE = Layer("outline", "Tissue outline", "lines")
MISSING = Layer("missing", "Not analysed", "lines")
LINES = (GRID.id, OUTLINE.id, MISSING.id)
COARSE = 512  # pixels across the slide by which the share of tissue that was not analysed is measured


class Tiles:
    """Tiles of one workbench. Threads may share it."""

    def __init__(self, bench: Workbench) -> None:
        self.bench = bench
        self._tiles: LruCache[bytes] = LruCache(TILES, weigh=len)
        self._layers = Layers(bench)
        self._painted: LruCache[Painted] = LruCache(PAINTED)
        self._overviews: LruCache[np.ndarray] = LruCache(OVERVIEWS)
        self._outlines: LruCache[tuple[Tissue, np.ndarray]] = LruCache(OUTLINES)
        self._missing: LruCache[float] = LruCache(RESOLUTIONS)

    def picture(self, draw: Callable[..., np.ndarray], name: str, *arguments: Any) -> bytes:
        """JPEG of a tile, a patch or a square, as `draw` (one of the next three functions) makes it of a slide."""
        key = draw.__name__, name, *arguments
        return self._tiles.get(key, lambda: render.jpeg(draw(name, *arguments)), self.bench.version(name))

    def base(self, name: str, zoom: int, x: int, y: int) -> np.ndarray:
        """Tile of the slide's image."""
        with self.bench.image(name) as slide:
            size = slide.dimensions
            window = _window(size, (zoom, x, y))
            if not render.needs_overview(slide.level_downsamples, slide.best_level(window.scale), window, size):
                return render.pixels(slide, window)
        # others need not wait for the overview: it is made by another process
        entry = self.bench.slide(name)
        read = partial(self.bench.compute, read_overview, entry, self.bench.settings)
        return render.from_overview(self._overviews.get(name, read, version_of(entry.files)), size, window)

    def thumbnail(self, name: str) -> np.ndarray:
        """The whole slide, as in its first tile."""
        with self.bench.image(name) as slide:
            size = slide.dimensions
        across, down = (math.ceil(length / Pyramid(*size).scale(0)) for length in size)
        return self.base(name, 0, 0, 0)[:down, :across]

    def patch(self, name: str, number: int, size: int | None = None) -> np.ndarray:
        """One patch, of the slide's own pixels or of ``size``."""
        patch_map = self.bench.patches(name)
        if patch_map.grid is None or number >= len(patch_map.grid.cells):
            raise UnknownError(f"{name}: there is no patch {number}")
        pixels = min(size or max(1, round(patch_map.side)), LARGEST_PATCH)
        # a cell is the middle of its patch where patches overlap
        left, top = (patch_map.corners[number] - max(0.0, (patch_map.side - patch_map.grid.pitch) / 2)).tolist()
        with self.bench.image(name) as slide:
            return render.pixels(slide, Window(left, top, pixels, pixels, patch_map.side / pixels))

    def square(self, name: str, query: SquareQuery) -> np.ndarray:
        """A patch in a known place: its slide's features need not be read."""
        with self.bench.image(name) as slide:
            unit = 1.0 if query.unit == "px" else slide.mpp
            side = query.side / unit
            if side < 1:
                raise UnknownError(f"{name}: a square of {side:g} pixels is empty")
            pixels = max(1, min(query.size or LARGEST_PATCH, round(side)))
            return render.pixels(slide, Window(query.x / unit, query.y / unit, pixels, pixels, side / pixels))

    def overlay(self, name: str, layer: str, options: LayerOptions, tile: tuple[int, int, int]) -> bytes:
        """PNG of a layer."""
        patch_map = self.bench.patches(name, options.set)
        window = _window((patch_map.canvas.width, patch_map.canvas.height), tile)
        key = patch_map.identity, layer, options, self._legend(patch_map, options), tile
        version = self._edits(name)[1] if layer in LINES else None
        return self._tiles.get(key, lambda: render.encode(*self.draw(patch_map, layer, options, window)[1:]), version)

    def draw(
        self, patch_map: PatchMap, layer: str, options: LayerOptions, window: Window
    ) -> tuple[Layer, np.ndarray, np.ndarray]:
        """A layer, as numbers (h, w) of its colours (n, 4)."""
        if layer == OUTLINE.id:
            return OUTLINE, render.outline_alpha(self.outline(patch_map)[1], window), render.OUTLINE_COLOURS
        if layer == MISSING.id:
            missing, _share = render.unanalysed(self.outline(patch_map)[0], _cells(patch_map), window)
            return MISSING, render.hatched(missing, window).astype(np.uint8), render.MISSING
        if patch_map.grid is None:
            raise UnknownError(" ".join((f"{patch_map.slide}: no patches.", *patch_map.notes)))
        if layer == GRID.id:
            return GRID, render.borders(patch_map.cells, window, patch_map.grid.pitch).astype(np.uint8), render.LINE
        painted = self.painted(patch_map, layer, options)
        codes, table = painted.colours.codes, painted.colours.table
        if painted.labels is None or options.style == "fill":
            return painted.layer, codes[patch_map.cells.under(window)], table
        around = codes[patch_map.cells.under(window.wider(render.REGION))]
        return painted.layer, *render.styled(around, table, window, options.style)

    def painted(self, patch_map: PatchMap, layer: str, options: LayerOptions) -> Painted:
        """Colours of a layer's patches."""
        key = patch_map.identity, layer, options, self._legend(patch_map, options)
        return self._painted.get(key, lambda: self._layers.paint(patch_map, layer, options))

    def outline(self, patch_map: PatchMap) -> tuple[Tissue, np.ndarray]:
        """Tissue on the canvas, and the sides of its outline (n, 2, 2); none where there is no outline."""
        entry = self.bench.slide(patch_map.slide)
        if entry.contours is None or patch_map.canvas.unit != "px":
            return Tissue(()), np.zeros((0, 2, 2))
        edits, version = self._edits(entry.name)
        read = partial(_sides, entry.contours, edits, patch_map.canvas.origin)
        return self._outlines.get(patch_map.slide, lambda: self.bench.compute(read), version)

    def _edits(self, name: str) -> tuple[Path, Version]:
        """File of the tissue's edits, and the version of the outline."""
        contours = self.bench.slide(name).contours
        if contours is None:
            return Path(), ()
        edits = contours.parent.parent / ANNOTATIONS / f"{name}.geojson"
        return edits, version_of([contours, edits])

    def layers(self, patch_map: PatchMap, options: LayerOptions) -> tuple[list[Layer], list[str]]:
        """Layers of a slide, and why others cannot be shown."""
        layers, notes = self._layers.available(patch_map, options)
        if patch_map.grid is not None:
            layers.append(GRID)
        try:
            tissue, sides = self.outline(patch_map)
            if len(sides):
                layers.append(OUTLINE)
            if tissue.regions:
                share = self._missing.get(
                    patch_map.identity, lambda: _unanalysed(tissue, patch_map), hash(sides.tobytes())
                )
                title = f"{MISSING.title}: {100 * share:.1f} % of the tissue"
                layers.append(replace(MISSING, title=title))
        except InputError as error:
            notes.append(str(error))
        return layers, notes

    def _legend(self, patch_map: PatchMap, options: LayerOptions) -> tuple[tuple[str, str], ...]:
        """Names and colours, which may change between requests."""
        return () if patch_map.assignment is None else tuple(self.bench.legend(options.set))


def read_overview(entry: SlideEntry, settings: MapSettings) -> np.ndarray:
    """A whole slide made small, (h, w, 3); run in a worker process."""
    assert entry.image is not None
    with open_slide(entry.image, check_image(entry, settings)) as slide:
        return slide.thumbnail(render.OVERVIEW)


def _sides(contours: Path, edits: Path, origin: tuple[float, float]) -> tuple[Tissue, np.ndarray]:
    read = with_edits(read_contours(contours), edits).tissue
    tissue = Tissue(
        *(tuple(render.shifted(polygon, origin) for polygon in part) for part in (read.regions, read.ignored))
    )
    return tissue, render.segments((*tissue.regions, *tissue.ignored))


def _unanalysed(tissue: Tissue, patch_map: PatchMap) -> float:
    width, height = patch_map.canvas.width, patch_map.canvas.height
    scale = max(1.0, max(width, height) / COARSE)
    window = Window(0, 0, math.ceil(width / scale), math.ceil(height / scale), scale)
    return render.unanalysed(tissue, _cells(patch_map), window)[1]


def _cells(patch_map: PatchMap) -> Cells | None:
    return None if patch_map.grid is None else patch_map.cells


def _window(size: tuple[int, int], tile: tuple[int, int, int]) -> Window:
    window = Pyramid(*size).window(*tile)
    if window is None:
        raise UnknownError("there is no such tile of this slide")
    return window

"""Tiles on demand, with a cache."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from panther.errors import InputError
from panther.explain.scene import MapSettings
from panther.slides import open_slide
from panther.slides.polygons import read_contours
from panther.store import version_of
from panther.viewer.contents import SlideEntry
from panther.viewer.patches import PatchMap
from panther.viewer.queries import LARGEST_PATCH, LayerOptions, SquareQuery
from panther.viewer.tiles import render
from panther.viewer.tiles.layers import Layer, Layers, Painted
from panther.viewer.tiles.pyramid import Pyramid, Window
from panther.viewer.workbench import LruCache, UnknownError, Workbench, check_image

TILES = 128 << 20  # bytes of finished tiles: some six thousand of the image
PAINTED = 16  # layers whose colours are kept
OVERVIEWS = 4  # of slides without a pyramid, 12 MB each
OUTLINES = 64  # slides whose outline is kept

GRID = Layer("grid", "Patch borders", "lines")
OUTLINE = Layer("outline", "Tissue outline", "lines")


class Tiles:
    """Tiles of one workbench. Threads may share it."""

    def __init__(self, bench: Workbench) -> None:
        self.bench = bench
        self._tiles: LruCache[bytes] = LruCache(TILES, weigh=len)
        self._layers = Layers(bench)
        self._painted: LruCache[Painted] = LruCache(PAINTED)
        self._overviews: LruCache[np.ndarray] = LruCache(OVERVIEWS)
        self._outlines: LruCache[np.ndarray] = LruCache(OUTLINES)

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
        return self._tiles.get(key, lambda: render.encode(*self.draw(patch_map, layer, options, window)[1:]))

    def draw(
        self, patch_map: PatchMap, layer: str, options: LayerOptions, window: Window
    ) -> tuple[Layer, np.ndarray, np.ndarray]:
        """A layer, as numbers (h, w) of its colours (n, 4)."""
        if layer == OUTLINE.id:
            return OUTLINE, render.outline_alpha(self.outline(patch_map), window), render.OUTLINE_COLOURS
        if patch_map.grid is None:
            raise UnknownError(" ".join((f"{patch_map.slide}: no patches.", *patch_map.notes)))
        if layer == GRID.id:
            return GRID, render.borders(patch_map.cells, window, patch_map.grid.pitch).astype(np.uint8), render.LINE
        painted = self.painted(patch_map, layer, options)
        return painted.layer, painted.colours.codes[patch_map.cells.under(window)], painted.colours.table

    def painted(self, patch_map: PatchMap, layer: str, options: LayerOptions) -> Painted:
        """Colours of a layer's patches."""
        key = patch_map.identity, layer, options, self._legend(patch_map, options)
        return self._painted.get(key, lambda: self._layers.paint(patch_map, layer, options))

    def outline(self, patch_map: PatchMap) -> np.ndarray:
        """Sides of the tissue's outline on the canvas, (n, 2, 2); none where there is no outline."""
        entry = self.bench.slide(patch_map.slide)
        if entry.contours is None or patch_map.canvas.unit != "px":
            return np.zeros((0, 2, 2))
        read = partial(_sides, entry, patch_map.canvas.origin)
        return self._outlines.get(patch_map.slide, lambda: self.bench.compute(read), version_of([entry.contours]))

    def layers(self, patch_map: PatchMap, options: LayerOptions) -> tuple[list[Layer], list[str]]:
        """Layers of a slide, and why others cannot be shown."""
        layers, notes = self._layers.available(patch_map, options)
        if patch_map.grid is not None:
            layers.append(GRID)
        try:
            if len(self.outline(patch_map)):
                layers.append(OUTLINE)
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


def _sides(entry: SlideEntry, origin: tuple[float, float]) -> np.ndarray:
    assert entry.contours is not None
    tissue = read_contours(entry.contours).tissue
    return render.segments((*tissue.regions, *tissue.ignored), origin)


def _window(size: tuple[int, int], tile: tuple[int, int, int]) -> Window:
    window = Pyramid(*size).window(*tile)
    if window is None:
        raise UnknownError("there is no such tile of this slide")
    return window

"""Explanations: where each prototype lies on a slide, as pictures and as regions that QuPath opens.

- ``assign(bag, module)`` gives (N, C), rows adding up to 1: the posterior that made the embedding.
- ``grid(coords, spec)`` gives the patches' integer cells; ``regions(grid, labels)`` polygons of contiguous patches.
- ``raster(grid, view)`` gives the patch under every pixel of a picture; ``draw_*`` return matplotlib figures.
- ``map_slide`` and ``write_map`` do all of it for one slide, `panther.make_map` for many; ``map_pixels`` and ``heat_pixels`` give the
  pictures as arrays.
- ``panther.explain.atlas``, ``.concordance``, ``.attribution`` and ``.kaplan_meier`` describe cohorts, classes and predictions.
"""

from panther.explain.geometry import Grid, Region, View, grid, raster, regions, write_regions
from panther.explain.maps import SlideMaps, map_slide, write_map
from panther.explain.names import as_names
from panther.explain.palette import PALETTE
from panther.explain.scene import Assigned, MapSettings, assign
from panther.explain.slide_map import (
    SlideMap,
    draw_heatmap,
    draw_heatmaps,
    draw_map,
    draw_side_by_side,
    heat_pixels,
    map_pixels,
)

__all__ = [
    "PALETTE",
    "Assigned",
    "Grid",
    "MapSettings",
    "Region",
    "SlideMap",
    "SlideMaps",
    "View",
    "as_names",
    "assign",
    "draw_heatmap",
    "draw_heatmaps",
    "draw_map",
    "draw_side_by_side",
    "grid",
    "heat_pixels",
    "map_pixels",
    "map_slide",
    "raster",
    "regions",
    "write_map",
    "write_regions",
]

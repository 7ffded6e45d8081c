"""Explanations: where each prototype lies on a slide, as pictures and as regions that QuPath opens.

- ``assign(bag, module)`` gives (N, C), rows adding up to 1: the posterior that made the embedding.
- ``grid(coords, spec)`` gives the patches' integer cells; ``regions(grid, labels)`` polygons of contiguous patches.
- ``raster(grid, view)`` gives the patch under every pixel of a picture; ``draw_*`` return matplotlib figures.
- ``make_map`` does all of it for slides and folders of them, ``map_slide`` and ``write_map`` for one slide;
  ``map_pixels`` and ``heat_pixels`` give its pictures as arrays.
- ``panther.explain.atlas``, ``.concordance``, ``.attribution`` and ``.kaplan_meier`` tell of cohorts, classes and predictions.
"""

from panther.explain.assign import Assigned, assign
from panther.explain.draw import draw_heatmap, draw_heatmaps, draw_map, draw_side_by_side
from panther.explain.geometry import Grid, View, grid, raster
from panther.explain.maps import SlideMaps, make_map, map_slide, write_map
from panther.explain.names import read_names
from panther.explain.palette import PALETTE
from panther.explain.regions import Region, regions, write_regions
from panther.explain.scene import MapSettings
from panther.explain.slide_map import SlideMap, heat_pixels, map_pixels

__all__ = [
    "PALETTE",
    "Assigned",
    "Grid",
    "MapSettings",
    "Region",
    "SlideMap",
    "SlideMaps",
    "View",
    "assign",
    "draw_heatmap",
    "draw_heatmaps",
    "draw_map",
    "draw_side_by_side",
    "grid",
    "heat_pixels",
    "make_map",
    "map_pixels",
    "map_slide",
    "raster",
    "read_names",
    "regions",
    "write_map",
    "write_regions",
]

"""Explanations: where each prototype lies on a slide, as pictures and as regions that QuPath opens.

- ``scene.assign(bag, module)`` gives (N, C), rows adding up to 1: the posterior that made the embedding.
- ``geometry.grid(coords, spec)`` gives the patches' integer cells; ``geometry.regions(grid, labels)`` polygons of contiguous patches.
- ``geometry.raster(grid, view)`` gives the patch under every pixel of a picture; ``slide_map.draw_*`` return matplotlib figures.
- ``map_slide`` does all of it for one slide, `panther.make_map` for many; ``map_pixels`` gives the picture as an array.
- ``atlas``, ``concordance``, ``attribution`` and ``kaplan_meier`` describe cohorts, classes and predictions.
"""

from panther.explain.maps import map_slide
from panther.explain.names import as_names
from panther.explain.palette import PALETTE
from panther.explain.scene import MapSettings
from panther.explain.slide_map import map_pixels

__all__ = ["PALETTE", "MapSettings", "as_names", "map_pixels", "map_slide"]

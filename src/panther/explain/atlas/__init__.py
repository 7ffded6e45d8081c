"""The atlas: what every prototype looks like, how much of it there is and in whom, and what it lies beside."""

from panther.explain.atlas.atlas import Atlas
from panther.explain.atlas.charts import draw_groups, draw_relations
from panther.explain.atlas.make import make_atlas
from panther.explain.atlas.sheets import draw_exemplars, draw_overview
from panther.explain.atlas.worker import AtlasSettings

__all__ = ["Atlas", "AtlasSettings", "draw_exemplars", "draw_groups", "draw_overview", "draw_relations", "make_atlas"]

"""The atlas: what every prototype looks like, how much of it there is and in whom, and what it lies beside."""

from panther.explain.atlas.atlas import Atlas
from panther.explain.atlas.charts import group_charts, relation_charts
from panther.explain.atlas.files import to_dict
from panther.explain.atlas.make import make_atlas
from panther.explain.atlas.sheets import draw_exemplars, draw_overview
from panther.explain.atlas.worker import AtlasSettings

__all__ = [
    "Atlas",
    "AtlasSettings",
    "draw_exemplars",
    "draw_overview",
    "group_charts",
    "make_atlas",
    "relation_charts",
    "to_dict",
]

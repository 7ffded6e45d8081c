"""Aggregators: from a bag of patches to one slide embedding."""

from panther.aggregators import counts, h2t, ot, panther, pooling  # noqa: F401 (register)
from panther.aggregators._base import aggregators, build, mixture_columns
from panther.aggregators.embed import EmbeddingTable, embed_bags
from panther.mixture import PRESETS, EMSettings

__all__ = [
    "PRESETS",
    "Aggregator",
    "EMSettings",
    "EmbeddingTable",
    "aggregators",
    "build",
    "embed_bags",
    "mixture_columns",
]

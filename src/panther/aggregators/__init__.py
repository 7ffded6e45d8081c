"""Aggregators: from a bag of patches to one slide embedding."""

from panther.aggregators import panther  # noqa: F401 (registers)
from panther.aggregators._base import Aggregator, aggregators, build
from panther.aggregators.cohort import EmbeddingTable, embed_cohort
from panther.aggregators.mixture import PRESETS, EMSettings

__all__ = ["PRESETS", "Aggregator", "EMSettings", "EmbeddingTable", "aggregators", "build", "embed_cohort"]

"""Attribution: what each prototype's amount, look and variety add to a model's prediction."""

from panther.explain.attribution.draw import draw_attribution, draw_cohort
from panther.explain.attribution.make import attribute
from panther.explain.attribution.model import Attribution, AttributionSettings

__all__ = ["Attribution", "AttributionSettings", "attribute", "draw_attribution", "draw_cohort"]

"""Stain normalisation: the two stains of a slide are found and put where those of a reference are."""

from panther.slides.stain.macenko import NotStained, StainFit, fit_stains, od_of
from panther.slides.stain.of_slide import METHODS, check_method, fit_slide

__all__ = ["METHODS", "NotStained", "StainFit", "check_method", "fit_slide", "fit_stains", "od_of"]

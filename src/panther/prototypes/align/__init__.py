"""Centring and harmonising: slides moved onto the training slides before prototypes see them, as their sites or they themselves ask."""

from panther.prototypes.align.fit import AlignedRef, align_fits
from panther.prototypes.align.new_sites import add_sites, with_sites_of
from panther.prototypes.align.origins import Origins, origins_of

__all__ = ["AlignedRef", "Origins", "add_sites", "align_fits", "origins_of", "with_sites_of"]

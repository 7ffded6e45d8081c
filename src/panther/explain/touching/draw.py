"""Neighbours as a picture: how often prototypes touch against chance, and what each borders on."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from panther.explain.touching.count import Touching


def draw_neighbours(found: Touching, titles: Sequence[str]) -> Any:
    """Two matrices side by side, of the prototypes that are there; returns a matplotlib figure."""
    from panther.charts.prototypes import contacts
    from panther.charts.spatial import borders
    from panther.charts.to_matplotlib import draw

    there = np.flatnonzero(found.members > 0).tolist()
    names, cells = [titles[c] for c in there], np.ix_(there, there)
    return draw([[contacts(names, found.log_ratio()[cells]), borders(names, found.border()[cells])]])

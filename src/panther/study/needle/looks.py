"""Four looks at a slide: proportions and means see all of it, the tail and the largest values see what stands out."""

from collections.abc import Sequence

import numpy as np
import torch

from panther.models.scaling import BalancedScaler, Scaler, ShareWeightedScaler
from panther.models.share_weighted import SLIDE_MEAN, Columns

WHOLE = {"pi": "proportions", "means": "means"}  # of tissues
STANDS_OUT = {"tail": "the tail", "max": "max-pooling"}
LOOKS = {**WHOLE, **STANDS_OUT}  # name in tables -> in sentences
# the prototypes nearest to the tail are proportions again: a panoramic task can be read from them
NOT_OF_THE_TAIL = "tail_nearest"


def scaled_looks(
    panther: np.ndarray, columns: Columns, largest: np.ndarray, train: np.ndarray
) -> dict[str, np.ndarray]:
    """Every look (n, D) at all rows, scaled by the rows ``train`` alone.

    ``panther`` (n, D) are mixtures with the block `tail` behind them, of these columns; ``largest`` (n, d) the largest value of every feature.
    Proportions and means are those that PANTHER's own probe sees, share-weighted.
    """
    statistics = [statistic for _, statistic, _ in columns]
    end = next(number for number, name in enumerate(statistics) if name.startswith("tail_"))
    tail = [number for number in range(end, len(statistics)) if statistics[number] != NOT_OF_THE_TAIL]
    mixtures = ShareWeightedScaler().fit(panther[train, :end], columns[:end])
    read = _scaled(mixtures, panther[:, :end])
    names = [statistic for _, statistic, _ in mixtures.columns(columns[:end])]
    strange = panther[:, tail]
    return {
        "pi": read[:, _are(names, "weight")],
        "means": read[:, _are(names, "mean", SLIDE_MEAN)],
        "tail": _scaled(BalancedScaler().fit(strange[train], [columns[number] for number in tail]), strange),
        "max": _scaled(BalancedScaler().fit(largest[train]), largest),
    }


def _are(names: Sequence[str], *wanted: str) -> np.ndarray:
    return np.flatnonzero(np.isin(names, wanted))


def _scaled(scaler: Scaler, x: np.ndarray) -> np.ndarray:
    return scaler(torch.from_numpy(np.array(x))).numpy()

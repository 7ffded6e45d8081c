"""Many tests at once."""

from collections.abc import Sequence

import numpy as np


def holm(p_values: Sequence[float]) -> list[float]:
    r"""Holm's corrected p-values :math:`\max_{j \le i} \min(1, (m - j + 1) p_{(j)})`: valid however the tests depend on each other.

    NaN (a test that is not defined) stays NaN and does not count.
    """
    p = np.asarray(p_values, float)
    defined = np.flatnonzero(~np.isnan(p))
    order = defined[np.argsort(p[defined], kind="stable")]
    stepped = (len(order) - np.arange(len(order))) * p[order]
    out = np.full(len(p), np.nan)
    out[order] = np.minimum(np.maximum.accumulate(stepped), 1.0) if len(order) else stepped
    return [float(value) for value in out]

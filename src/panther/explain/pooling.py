"""A patient's proportions from its slides: the one definition that the atlas and the survival curves share."""

import numpy as np


def pooled(pi: np.ndarray, patches: np.ndarray) -> np.ndarray:
    r"""Proportions (C,) of a patient from pi (n, C) and the numbers of patches (n,) of its slides.

    .. math:: \pi_c = \sum_s N_s \pi_{sc} / \sum_s N_s

    That is the pi of all patches together, so it does not matter over how many slides the tissue was cut.
    """
    return (patches / patches.sum()) @ pi

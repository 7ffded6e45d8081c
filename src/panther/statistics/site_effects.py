"""What is peculiar to a site: effects on slides' means and log variances, shrunk by how far slides scatter.

A slide is one observation. Patches of a slide are not independent, so that thousands of them do not make a site well known.
"""

from dataclasses import dataclass

import numpy as np

from panther.errors import InputError


@dataclass(frozen=True)
class SiteEffects:
    """What `site_effects` finds, for each of the d columns."""

    mean: np.ndarray  # (d,), over all slides
    spread: np.ndarray  # (d,), standard deviation of slides within a site
    effects: np.ndarray  # (S, d), of each site, shrunk
    kept: np.ndarray  # (S,), share of the raw difference that shrinking left


def site_effects(y: np.ndarray, site: np.ndarray, protected: np.ndarray | None = None) -> SiteEffects:
    r"""Empirical-Bayes effects of sites.

    .. math:: y_j = m + X_j b + g_{s(j)} + e_j, \quad e \sim N(0, \sigma^2), \quad g_s / \sigma \sim N(0, \tau_s^2)

    Least squares give raw effects with :math:`\sum_s n_s g_s = 0` and their noise :math:`v_s \sigma^2`; :math:`\tau_s^2` is the mean of
    :math:`(g_s / \sigma)^2` over the columns less :math:`v_s`, at least 0, and the effect is
    :math:`g_s \tau_s^2 / (\tau_s^2 + v_s)`: nothing where sites differ no more than slides do.

    Parameters
    ----------
    y : array (n, d)
        One row per slide.
    site : array (n,) of int
        Number of each slide's site, 0 ... S - 1.
    protected : array (n, k), optional
        Covariates X whose effects are not the sites'.

    Returns
    -------
    SiteEffects
        In float64.
    """
    y = np.asarray(y, np.float64)
    n, count = len(y), int(site.max()) + 1
    is_of = np.eye(count)[site]  # (n, S)
    known = _varying(protected, n)
    design = np.concatenate([is_of, known], 1)
    rank = int(np.linalg.matrix_rank(design))
    if known.shape[1] and rank < count + np.linalg.matrix_rank(known):
        raise InputError(
            "Sites and protected columns cannot be told apart: the site decides the value of a protected column. No correction can "
            "remove the one and keep the other; protect other columns, or leave the features as they are."
        )
    free = n - rank
    if free < 1:
        raise InputError(
            f"{n} slides of {count} sites are too few to tell sites from slides: at least one site needs two slides. "
            "Give more slides, or use `centre='slide'`."
        )
    solve = np.linalg.pinv(design)  # (S + k, n)
    fitted = solve @ y
    size = is_of.sum(0) / n
    contrast = solve[:count] - size @ solve[:count]  # effects are linear in y
    residual = y - design @ fitted
    spread = np.sqrt((residual * residual).sum(0) / free)
    effects, kept = shrunk(contrast @ y, (contrast * contrast).sum(1), spread)
    return SiteEffects(size @ fitted[:count], spread, effects, kept)


def new_site_effect(y: np.ndarray, mean: np.ndarray, spread: np.ndarray, slides: int) -> tuple[np.ndarray, float]:
    """Effect (d,) of a site that was not there when ``mean`` and ``spread`` were found on so many slides, and the share kept."""
    raw = np.asarray(y, np.float64).mean(0) - mean
    effects, kept = shrunk(raw[None], np.array([1 / len(y) + 1 / slides]), spread)
    return effects[0], float(kept[0])


def shrunk(raw: np.ndarray, noise: np.ndarray, spread: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Raw effects (S, d) with noise (S,) in units of the squared spread, times the share (S,) that is not noise.

    A column in which slides do not scatter at all says nothing about shrinking.
    """
    moving = spread > 1e-12 * max(float(spread.max(initial=0)), 1e-300)
    standard = raw[:, moving] / spread[moving]
    excess = np.maximum((standard * standard).mean(1) - noise, 0) if moving.any() else np.zeros(len(raw))
    kept = excess / np.maximum(excess + noise, 1e-300)
    return raw * kept[:, None], kept


def _varying(protected: np.ndarray | None, n: int) -> np.ndarray:
    """Covariates about their means, those that differ between slides."""
    if protected is None or protected.shape[1] == 0:
        return np.zeros((n, 0))
    centred = protected - protected.mean(0)
    scale = centred.std(0)
    return centred[:, scale > 1e-9] / scale[scale > 1e-9]

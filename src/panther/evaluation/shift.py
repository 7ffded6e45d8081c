"""Can the site be read off the prototype proportions? If so, a model on them may learn hospitals instead of disease."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from panther.errors import InputError, counted
from panther.limits import check_seed, check_whole

FOLDS, REPEATS = 5, 4  # of the cross-validation
FEWEST = 5  # groups (patients, or slides) a site needs to be judged
ALPHA = 0.01  # chance of a false alarm
DOUBTFUL = 0.05  # below it nobody should be reassured
COLLAPSED = 1.05  # effective number of prototypes below which a slide counts as collapsed


@dataclass(frozen=True)
class ShiftReport:
    """How well the site can be read off the proportions."""

    sites: dict[str, int]  # site -> groups, those that were judged
    left_out: dict[str, int]  # sites with too few
    accuracy: float  # cross-validated balanced accuracy
    chance: float  # mean over permutations of the sites
    p_value: float
    collapsed: tuple[str, ...]  # samples that lie in one prototype
    sentence: str

    @property
    def alarm(self) -> bool:
        """Whether there is a shift to worry about."""
        return self.p_value <= ALPHA

    @property
    def doubtful(self) -> bool:
        """Whether there may be one, too."""
        return self.p_value < DOUBTFUL


def site_shift(
    weights: np.ndarray,
    sites: Sequence[str],
    samples: Sequence[str],
    groups: Sequence[str] | None = None,
    *,
    permutations: int = 999,
    seed: int = 0,
) -> ShiftReport:
    """Predict the site from mixture weights (n, C), against the same with permuted sites.

    Samples of one group (patient) stay together, in folds and in permutations; a patient with slides of two sites is refused.
    """
    bad = np.flatnonzero(~np.isfinite(weights).all(1) | (weights < 0).any(1) | (weights.sum(1) == 0))
    if len(bad):
        raise InputError(
            f"The proportions of {samples[bad[0]]} (and {len(bad) - 1} more) are NaN, negative or all zero; nothing can be said of them."
        )
    check_seed(seed)
    check_whole("permutations", permutations, 1, 1_000_000)
    groups = list(groups) if groups is not None else list(samples)
    site_of = _site_of_groups(groups, sites)
    names = sorted(site_of)
    mean = {g: np.zeros(weights.shape[1]) for g in names}
    for group, row in zip(groups, weights, strict=True):
        mean[group] += row
    x = np.sqrt(np.stack([mean[g] / mean[g].sum() for g in names]))  # on this scale distances are Hellinger's
    y = np.array([site_of[g] for g in names])
    count = Counter(y.tolist())
    judged = {site: n for site, n in sorted(count.items()) if n >= FEWEST}
    if len(judged) < 2:
        raise InputError(
            f"A site shift needs at least two sites with {FEWEST} patients each; found {counted(y.tolist())}. Give another column."
        )
    keep = np.isin(y, list(judged))
    x, y = x[keep], np.searchsorted(list(judged), y[keep])  # sites as numbers
    rng = np.random.default_rng(seed)
    smoother = _cross_validated_ridge(x, rng)
    accuracy = _balanced_accuracy(smoother, y)
    null = np.array([_balanced_accuracy(smoother, rng.permutation(y)) for _ in range(permutations)])
    p_value = float((1 + (null >= accuracy).sum()) / (1 + permutations))
    collapsed = tuple(s for s, row in zip(samples, weights, strict=True) if _effective(row) < COLLAPSED)
    left_out = {site: n for site, n in sorted(count.items()) if site not in judged}
    sentence = _sentence(accuracy, float(null.mean()), p_value, len(judged), collapsed, len(samples))
    return ShiftReport(judged, left_out, accuracy, float(null.mean()), p_value, collapsed, sentence)


def _site_of_groups(groups: Sequence[str], sites: Sequence[str]) -> dict[str, str]:
    site_of: dict[str, str] = {}
    for group, site in zip(groups, sites, strict=True):
        if site_of.setdefault(group, site) != site:
            raise InputError(
                f"Patient {group} has slides of two sites ({site_of[group]} and {site}); correct the table."
            )
    return site_of


def _cross_validated_ridge(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Matrices (repeats, n, n) that turn targets into predictions by ridge regression on the other folds.

    Ridge regression is linear in the targets, so the matrices serve for all permutations of them.
    """
    n = len(x)
    smoother = np.zeros((REPEATS, n, n))
    for repeat in smoother:
        for test in np.array_split(rng.permutation(n), FOLDS):
            train = np.setdiff1d(np.arange(n), test)
            centre, scale = x[train].mean(0), x[train].std() or 1.0  # one scale: a rare prototype must not be blown up
            a, b = (x[train] - centre) / scale, (x[test] - centre) / scale
            # the intercept is the share of each site overall: that of the other folds would tell what this fold lacks
            repeat[np.ix_(test, train)] = b @ np.linalg.solve(a.T @ a + np.eye(x.shape[1]), a.T)
    return smoother


def _balanced_accuracy(smoother: np.ndarray, y: np.ndarray) -> float:
    """Mean recall over the sites, averaged over the repeats; sites weigh the same however large they are."""
    target = np.eye(y.max() + 1)[y]
    share = target.mean(0)
    predicted = (smoother @ target / share).argmax(-1)  # (repeats, n), of (share + effect) / share
    return float(((predicted == y) @ (target / target.sum(0))).mean())


def _effective(row: np.ndarray) -> float:
    p = row[row > 0]
    return float(np.exp(-(p * np.log(p)).sum()))


def _sentence(
    accuracy: float, chance: float, p_value: float, sites: int, collapsed: tuple[str, ...], samples: int
) -> str:
    if p_value <= ALPHA:
        said = (
            f"Warning: the proportions tell the {sites} sites apart (balanced accuracy {accuracy:.2f}, chance {chance:.2f}, p = {p_value:.3f}): "
            "split by site (site-preserving folds), and distrust differences between groups that come from different sites."
        )
    else:
        found = "There may be a site shift" if p_value < DOUBTFUL else "No site shift found"
        said = f"{found} in the proportions (balanced accuracy {accuracy:.2f}, chance {chance:.2f}, p = {p_value:.3f})."
    if collapsed:
        said += f" {len(collapsed)} of {samples} samples collapse into one prototype, e.g. {collapsed[0]}."
    return said

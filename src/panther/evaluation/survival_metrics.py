"""Metrics of survival, in plain numpy: c-index (Harrell's and Uno's) and its pairs, time-dependent AUC, Brier score, Kaplan-Meier, log-rank test.

`time` (n,) is follow-up, `event` (n,) is True where it ended with the endpoint, `risk` (n,) is larger for those who are
expected to have it sooner. Inverse-probability-of-censoring weights come from a reference (the training patients), never
from the test patients. Undefined metrics are NaN.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import chdtrc, ndtri  # what scipy.stats calls; that takes half a second to import

from panther.errors import InputError
from panther.evaluation.metrics import ratio

TIED = 1e-8  # risks this close are equal: rounding of float32 and of sums
PAIRS = 1_000_000  # in memory together: a few MB
Outcome = tuple[np.ndarray, np.ndarray]  # time and event


@dataclass(frozen=True)
class ComparablePairs:
    """Number of comparable patients of each patient with an event, and of those with a lower risk."""

    index: np.ndarray  # (e,), positions of the patients with an event
    counts: np.ndarray  # (..., e), their frequencies
    right: np.ndarray  # (..., e), pairs in the right order; equal risks count half
    number: np.ndarray  # (..., e), comparable pairs

    def concordance(self, weight: np.ndarray | None = None) -> np.ndarray:
        """Share of pairs in the right order (...,), weighted by their events (e,); NaN without pairs."""
        counts = self.counts if weight is None else self.counts * weight
        return ratio(np.vecdot(counts, self.right), np.vecdot(counts, self.number))


def comparable_pairs(
    time: np.ndarray, event: np.ndarray, risk: np.ndarray, counts: np.ndarray | None = None
) -> ComparablePairs:
    """Count the pairs of a c-index; `counts` (..., n) are the frequencies of the patients, 1 by default.

    A pair is comparable when the shorter follow-up ended with an event, or both are equal and exactly one did. Risks that differ by at
    most 1e-8 are equal; this relation is not transitive, so pairs are compared one by one.
    """
    counts = np.ones(len(time)) if counts is None else counts
    index = np.flatnonzero(event)
    right, number = (np.zeros((*counts.shape[:-1], len(index))) for _ in range(2))
    for block in np.array_split(np.arange(len(index)), max(1, len(index) * len(time) // PAIRS)):
        i = index[block, None]
        later = (time[i] < time) | ((time[i] == time) & ~event)  # (b, n)
        equal = np.abs(risk - risk[i]) <= TIED
        number[..., block] = counts @ later.T
        right[..., block] = counts @ (later * np.where(equal, 0.5, risk[i] > risk)).T
    return ComparablePairs(index, counts[..., index], right, number)


def concordance(time: np.ndarray, event: np.ndarray, risk: np.ndarray) -> float:
    r"""Harrell's c-index: share of comparable pairs (:func:`comparable_pairs`) whose risks have the right order."""
    return float(comparable_pairs(time, event, risk).concordance())


def uno_weights(time: np.ndarray, reference: Outcome) -> np.ndarray:
    r"""Weights of pairs by the time of the event for Uno's c-index, which does not depend on the censoring of the test patients.

    .. math:: \frac{\sum_{i, j} [t_i < t_j]\, \delta_i\, w_i\, [r_i > r_j]}{\sum_{i, j} [t_i < t_j]\, \delta_i\, w_i},
              \quad w_i = [t_i < \tau] / G(t_i)^2

    G is the probability of not being censored yet, estimated on the reference (time and event of the training patients), and tau its last
    event. Later events, also those after the end of the reference's follow-up, have weight 0, because G is unknown there. Uno et al.: On the
    C-statistics for evaluating overall adequacy of risk prediction procedures with censored survival data, Statistics in Medicine 2011.
    """
    known_time, known_event = reference
    if not known_event.any():
        return np.zeros(len(time))
    free = step(*censoring_survival(known_time, known_event), time)
    inside = (time < known_time[known_event].max()) & (free > 0)
    return np.where(inside, 1 / np.where(inside, free, 1) ** 2, 0.0)


@dataclass(frozen=True)
class KaplanMeier:
    """Survival curve; a step function that changes at `time`."""

    time: np.ndarray  # (m,), distinct follow-up times, increasing
    at_risk: np.ndarray  # (m,)
    events: np.ndarray  # (m,)
    survival: np.ndarray  # (m,)
    low: np.ndarray  # (m,), pointwise confidence limits (log-log Greenwood)
    high: np.ndarray  # (m,)

    def at(self, time: np.ndarray) -> np.ndarray:
        """Survival at any time."""
        return step(self.time, self.survival, time)

    @property
    def median(self) -> float:
        """First time with a survival of at most 0.5; infinite where it is not reached."""
        below = np.flatnonzero(self.survival <= 0.5)
        return float(self.time[below[0]]) if len(below) else np.inf


def kaplan_meier(time: np.ndarray, event: np.ndarray) -> KaplanMeier:
    r"""Product-limit estimate :math:`S(t) = \prod_{t_k \le t} (1 - d_k / n_k)` with Greenwood's log-log limits."""
    distinct, at_risk, events, _ = _life_table(time, event)
    survival = np.cumprod(1 - events / at_risk)
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = np.cumsum(events / (at_risk * (at_risk - events)))
        spread = ndtri(0.975) * np.sqrt(variance) / np.log(survival)
        inside = (survival > 0) & (survival < 1)
        low = np.where(inside, survival ** np.exp(-spread), survival)
        high = np.where(inside, survival ** np.exp(spread), survival)
    return KaplanMeier(distinct, at_risk, events, survival, low, high)


def censoring_survival(time: np.ndarray, event: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Times and probability G of not being censored; at equal times events come before censorings."""
    distinct, at_risk, events, censored = _life_table(time, event)
    return distinct, np.cumprod(1 - censored / np.maximum(at_risk - events, 1))


def step(knots: np.ndarray, values: np.ndarray, at: np.ndarray, before: float = 1.0) -> np.ndarray:
    """Right-continuous step function through (knots, values); `before` the first knot."""
    return np.concatenate([[before], values])[np.searchsorted(knots, at, side="right")]


def time_dependent_auc(
    outcome: Outcome, risk: np.ndarray, times: np.ndarray, reference: Outcome
) -> tuple[np.ndarray, float]:
    r"""Cumulative/dynamic AUC at each time, and its mean weighted by the drop of survival.

    .. math:: \frac{\sum_{i: t_i \le t, \delta_i = 1} \sum_{j: t_j > t} \omega_i [r_i > r_j]}{\sum_i \omega_i \; |\{t_j > t\}|},
              \quad \omega_i = 1 / G(t_i)

    Parameters
    ----------
    outcome, reference : tuple of arrays
        (time, event) of the test patients, and of those from whom censoring is estimated.
    """
    time, event = outcome
    free = step(*censoring_survival(*reference), time)
    weight = np.where(event & (free > 0), 1 / np.where(free > 0, free, 1), 0.0)
    auc = np.array([_auc_at(time, event, risk, weight, t) for t in times])
    drop = -np.diff(kaplan_meier(time, event).at(np.asarray(times)), prepend=1.0)
    defined = ~np.isnan(auc)
    total = drop[defined].sum()
    return auc, float((auc[defined] * drop[defined]).sum() / total) if total > 0 else np.nan


def _auc_at(time: np.ndarray, event: np.ndarray, risk: np.ndarray, weight: np.ndarray, at: float) -> float:
    case, control = (time <= at) & event, np.sort(risk[time > at])
    mass = weight[case].sum()
    if mass == 0 or len(control) == 0:
        return np.nan
    below = np.searchsorted(control, risk[case] - TIED, "left") + np.searchsorted(control, risk[case] + TIED, "right")
    return float((weight[case] * below / 2).sum() / (mass * len(control)))


def brier(outcome: Outcome, survival: np.ndarray, times: np.ndarray, reference: Outcome) -> np.ndarray:
    r"""Brier score at each time, of predicted survival (n, T) at these times.

    .. math:: \frac{1}{n} \sum_i \frac{[t_i \le t, \delta_i = 1]\, S_i(t)^2}{G(t_i)} + \frac{[t_i > t]\,(1 - S_i(t))^2}{G(t)}
    """
    time, event = outcome[0][:, None], outcome[1][:, None]
    knots, free = censoring_survival(*reference)
    at_end, then = step(knots, free, time), step(knots, free, np.asarray(times))
    at_end, then = np.where(at_end > 0, at_end, np.inf), np.where(then > 0, then, np.inf)
    died = ((time <= times) & event) * survival**2 / at_end
    alive = (time > times) * (1 - survival) ** 2 / then
    return (died + alive).mean(0)


def integrated_brier(outcome: Outcome, survival: np.ndarray, times: np.ndarray, reference: Outcome) -> float:
    """Mean Brier score over the span of `times` (trapezoids); 0.25 is that of a constant 0.5, smaller is better."""
    if len(times) < 2:
        return np.nan
    return float(np.trapezoid(brier(outcome, survival, times, reference), times) / (times[-1] - times[0]))


def breslow_baseline(time: np.ndarray, event: np.ndarray, log_risk: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    r"""Times and cumulative baseline hazard of Cox's model: :math:`H_0(t) = \sum_{t_k \le t} d_k / \sum_{j: t_j \ge t_k} e^{\eta_j}`."""
    distinct, _, events, _ = _life_table(time, event)
    order = np.argsort(time, kind="stable")
    at_risk = np.cumsum(np.exp(log_risk[order])[::-1])[::-1]  # sum over t_j >= t_i, in the order of time
    return distinct, np.cumsum(events / at_risk[np.searchsorted(time[order], distinct)])


def evaluation_times(outcome: Outcome, reference: Outcome, number: int = 20) -> np.ndarray:
    """Times at which curves are compared: between the 10th and 90th percentile of the events, within both follow-ups.

    Weights are defined only where the reference has patients under observation.
    """
    time, event = outcome
    if not event.any():
        return np.empty(0)
    low, high = np.quantile(time[event], [0.1, 0.9])
    knots, free = censoring_survival(*reference)
    end = min(time.max(), next(iter(knots[free <= 0]), knots[-1]))
    times = np.linspace(low, high, number) if high > low else np.array([low])
    return times[times < end]


@dataclass(frozen=True, eq=False)
class LogRank:
    """Test of equal survival between groups."""

    statistic: float  # chi-squared
    degrees: int
    p_value: float
    observed: np.ndarray  # (K,), events of each group
    expected: np.ndarray  # (K,), events under equal survival; fewer than observed: worse survival


def number_at_risk(km: KaplanMeier, times: np.ndarray) -> np.ndarray:
    """Patients under observation just before each time, (k,)."""
    return np.append(km.at_risk, 0)[np.searchsorted(km.time, np.asarray(times, float), side="left")]


def round_times(last: float, most: int = 8) -> list[float]:
    """At most ``most`` times from 0 to the last one, in steps of 1, 2, 2.5 or 5 times a power of ten."""
    if not last > 0:
        return [0.0]
    power = 10.0 ** np.floor(np.log10(last / (most - 1)))
    step = next(power * k for k in (1, 2, 2.5, 5, 10) if last / (power * k) <= most - 1)
    return [float(step * k) for k in range(int(last / step + 1e-9) + 1)]


def log_rank(time: np.ndarray, event: np.ndarray, group: np.ndarray) -> LogRank:
    r"""Log-rank test between any number of groups: observed against expected events, hypergeometric covariance."""
    names, member = np.unique(group, return_inverse=True)
    if len(names) < 2:
        raise InputError("group: one group, expected at least two for a log-rank test")
    distinct, total, events, _ = _life_table(time, event)
    inside = member[:, None] == np.arange(len(names))  # (n, K)
    begins = np.searchsorted(distinct, time)
    observed = np.zeros((len(distinct), len(names)))
    leaving = np.zeros_like(observed)
    np.add.at(observed, begins, inside * event[:, None])
    np.add.at(leaving, begins, inside)
    at_risk = leaving[::-1].cumsum(0)[::-1]  # (m, K)
    share = at_risk / total[:, None]
    expected = events[:, None] * share
    difference = (observed - expected).sum(0)[:-1]
    factor = events * (total - events) / np.maximum(total - 1, 1)
    covariance = np.diag((factor[:, None] * share).sum(0)) - share.T @ (factor[:, None] * share)
    statistic = float(difference @ np.linalg.pinv(covariance[:-1, :-1]) @ difference)
    p = float(chdtrc(len(names) - 1, statistic))
    return LogRank(statistic, len(names) - 1, p, observed.sum(0), expected.sum(0))


def risk_groups(risk: np.ndarray, reference: np.ndarray, number: int = 2) -> np.ndarray:
    """Group 0 (low) ... number-1 (high) of each patient, cut at quantiles of the reference (training) risks."""
    return np.searchsorted(np.quantile(reference, np.linspace(0, 1, number + 1)[1:-1]), risk, side="left")


def _life_table(time: np.ndarray, event: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Distinct times, and at each: patients at risk, events, censorings."""
    if len(time) == 0:
        raise InputError("There are no patients for a survival curve; check the table and the split.")
    distinct, position = np.unique(time, return_inverse=True)
    leaving = np.bincount(position, minlength=len(distinct))
    events = np.bincount(position, weights=np.asarray(event, float), minlength=len(distinct)).astype(int)
    return distinct, len(time) - np.concatenate([[0], np.cumsum(leaving)[:-1]]), events, leaving - events


def wrong_pairs(time: np.ndarray, event: np.ndarray, risk: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Wrong pairs (n,) and comparable pairs (n,) of each patient, as the earlier or the later one.

    Pairs are comparable as in :func:`comparable_pairs`; equal risks are half wrong. Each pair is counted with both patients.
    """
    wrong, number = np.zeros(len(time)), np.zeros(len(time))
    index = np.flatnonzero(event)
    for block in np.array_split(index, max(1, len(index) * len(time) // PAIRS)):
        i = block[:, None]
        later = (time[i] < time) | ((time[i] == time) & ~event)  # (b, n)
        off = later * np.where(np.abs(risk - risk[i]) <= TIED, 0.5, risk[i] < risk)
        for total, pairs in ((number, later), (wrong, off)):
            total += pairs.sum(0)
            total[block] += pairs.sum(1)
    return wrong, number

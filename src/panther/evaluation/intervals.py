"""Intervals and comparisons by resampling of patients (never of slides).

A resample is given by the frequencies of the rows. A measure is a function from such counts to named numbers, so all metrics of one set of
predictions, and all methods on the same patients, share the same resamples. Resamples where a metric is undefined (one class only, no
events) are left out of that metric.

A perfect score needs an exact bound: every resample of patients without an error is 1, so the interval [1, 1] has no information about new
patients. The exact binomial bound depends on the number of patients.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import bdtr  # scipy.stats takes half a second to import

from panther.evaluation.metrics import LOWER_IS_BETTER, mean_of_defined

Measure = Callable[[np.ndarray], Mapping[str, np.ndarray]]  # counts (resamples, rows) -> named numbers (resamples,)
BLOCK = 4_000_000  # counts in memory together: 32 MB
LEVEL = 0.95  # of all intervals and bounds
FEW = 100  # resamples, below which the limits of an interval depend on one or two of them
CAPTION = (
    "95 % intervals and p-values resample patients. For cross-validation the interval is for the method: the score expected from training on a "
    "new cohort of this size. It is widened because the folds share training patients. For a single test set or an external cohort it is for "
    "the trained models. The correction is approximate (simulated with 3 to 10 folds: p < 0.05 in at most 5 % of equal methods, coverage at "
    "least 93 %)."
)


@dataclass(frozen=True)
class Interval:
    """A value and its percentile interval."""

    value: float
    low: float
    high: float
    resamples: int  # where the metric is defined


@dataclass(frozen=True)
class Difference(Interval):
    """First minus second, on the same resamples of patients."""

    p_value: float  # two-sided


@dataclass(frozen=True, eq=False)
class Resampled:
    """Every metric on all rows, and on resamples of their patients."""

    whole: Mapping[str, float]
    drawn: Mapping[str, np.ndarray]  # (resamples,), NaN where the metric is undefined


def resample_counts(patients: Sequence[object] | np.ndarray, number: int, seed: int) -> Iterator[np.ndarray]:
    """Counts of rows (b, n) in `number` draws of patients with replacement, in blocks; rows of a patient have equal counts."""
    names, member = np.unique(np.asarray(patients).astype(str), return_inverse=True)
    rng = np.random.default_rng(seed)
    most = max(1, BLOCK // len(member))
    for start in range(0, number, most):
        drawn = rng.integers(len(names), size=(min(most, number - start), len(names)))
        drawn += len(names) * np.arange(len(drawn))[:, None]
        counts = np.bincount(drawn.ravel(), minlength=drawn.size).reshape(drawn.shape)
        yield counts.astype(np.float64)[:, member]


def resample(measure: Measure, patients: Sequence[object] | np.ndarray, number: int = 1000, seed: int = 0) -> Resampled:
    """Measure all rows, and `number` resamples of their patients; the same patients and seed give the same resamples."""
    whole = measure(np.ones((1, len(patients))))
    blocks = [measure(counts) for counts in resample_counts(patients, number, seed)]
    if not blocks:  # no resamples: no intervals and no p-values
        blocks = [{name: np.empty(0) for name in whole}]
    return Resampled(
        {name: float(value[0]) for name, value in whole.items()},
        {name: np.concatenate([block[name] for block in blocks]) for name in whole},
    )


def over_folds(resampled: Resampled, patients: int, tested: float) -> Resampled:
    r"""Resamples of a mean over cross-validation folds, spread for the correlation of the folds' models.

    Each fold's model was trained on the test patients of the others. Nadeau and Bengio (2003) raise the variance of the mean of J folds from
    :math:`\sigma^2 / J` to :math:`\sigma^2 (1 / J + n_{test} / n_{train})`, here by spreading the resamples about their mean by the root of
    :math:`1 + J n_{test} / n_{train}`, with N patients of whom a fold tests n: :math:`\sqrt{1 + N / (N - n)}`, 1.5 for five folds.
    """
    spread = np.sqrt(1 + patients / max(patients - tested, patients / 2))  # two folds at least
    centre = {name: mean_of_defined(values) if len(values) else np.nan for name, values in resampled.drawn.items()}
    drawn = {name: centre[name] + spread * (values - centre[name]) for name, values in resampled.drawn.items()}
    return Resampled(resampled.whole, drawn)


def about_resamples(number: int) -> str | None:
    """Note on too few resamples; None where they are enough."""
    if number == 0:
        return "There are no intervals over patients and no p-values by resampling them, because of `bootstrap: 0`."
    if number < FEW:
        return (
            f"Intervals and p-values over patients are rough: `bootstrap: {number}`, expected 1000 or more resamples."
        )
    return None


def intervals(resampled: Resampled) -> dict[str, Interval]:
    """Percentile interval of every metric over patients."""
    return {name: Interval(value, *_limits(resampled.drawn[name])) for name, value in resampled.whole.items()}


def differences(first: Resampled, second: Resampled) -> dict[str, Difference]:
    r"""Difference of every metric between two sets of predictions for the same rows, on the same resamples.

    The p-value is twice the share of resamples on the other side of 0, with the data counted as one more:
    :math:`2 (\min(\#\{d \le 0\}, \#\{d \ge 0\}) + 1) / (n + 1)`: at least :math:`2 / (n + 1)`, at most 1.
    """
    by_metric = {}
    for name in [name for name in first.whole if name in second.whole]:
        values = first.drawn[name] - second.drawn[name]
        values = values[~np.isnan(values)]
        wrong = min(int((values <= 0).sum()), int((values >= 0).sum()))
        p = min(1.0, 2 * (wrong + 1) / (len(values) + 1)) if len(values) else np.nan
        by_metric[name] = Difference(first.whole[name] - second.whole[name], *_limits(values), p)
    return by_metric


def best_of(rows: Sequence[Resampled], metric: str, *, lower: bool = False) -> Interval:
    r"""Score of the best of several rows, corrected for its selection on these patients.

    Every resample repeats the selection: with its best row :math:`k(b)`, the optimism of resample b is
    :math:`o_b = m^b_{k(b)} - m_{k(b)}`. The score is :math:`\max_k m_k - \max(0, \bar o)`, its interval :math:`\max_k m_k` minus the
    quantiles of o.
    ``lower``: lower is better.
    """
    sign = -1 if lower else 1
    defined = [row for row in rows if not np.isnan(row.whole[metric])]
    whole = sign * np.array([row.whole[metric] for row in defined])
    drawn = sign * np.stack([row.drawn[metric] for row in defined])  # (K, resamples)
    best = np.where(np.isnan(drawn), -np.inf, drawn).argmax(0)
    optimism = drawn[best, np.arange(drawn.shape[1])] - whole[best]
    low, high, resamples = _limits(whole.max() - optimism)
    value = sign * (whole.max() - (max(0.0, float(mean_of_defined(optimism))) if resamples else np.nan))
    return Interval(value, *((-high, -low) if lower else (low, high)), resamples)


def sign_test(won: int, lost: int) -> float:
    r"""Two-sided exact p-value of McNemar's test: :math:`2 P(X \le \min(w, l))`, X binomial with w + l trials of 1/2."""
    return min(1.0, 2 * float(bdtr(min(won, lost), won + lost, 0.5))) if won + lost else 1.0


def _limits(values: np.ndarray) -> tuple[float, float, int]:
    values = values[~np.isnan(values)]
    if len(values) == 0:
        return np.nan, np.nan, 0
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high), len(values)


def holm(p_values: Sequence[float]) -> list[float]:
    r"""Holm's corrected p-values :math:`\max_{j \le i} \min(1, (m - j + 1) p_{(j)})`: valid for dependent tests.

    NaN (an undefined test) stays NaN and is not counted.
    """
    p = np.asarray(p_values, float)
    defined = np.flatnonzero(~np.isnan(p))
    order = defined[np.argsort(p[defined], kind="stable")]
    stepped = (len(order) - np.arange(len(order))) * p[order]
    out = np.full(len(p), np.nan)
    out[order] = np.minimum(np.maximum.accumulate(stepped), 1.0) if len(order) else stepped
    return [float(value) for value in out]


def is_perfect(mean: float, metric: str) -> bool:
    """Whether a score is 1, the best value of all metrics but errors."""
    return metric not in LOWER_IS_BETTER and bool(mean >= 1 - 1e-12)


def exact_lower(patients: int) -> float:
    r"""Lower end of Clopper and Pearson's two-sided interval for n of n successes: :math:`(\alpha / 2)^{1/n}`.

    0.884 for 30 patients, 0.963 for 100.
    """
    return float(((1 - LEVEL) / 2) ** (1 / patients)) if patients else 0.0


def exact_lower_balanced(patients: Sequence[int]) -> float:
    r"""Exact lower bound of the mean recall of K classes with :math:`n_k` patients each.

    The smallest :math:`\frac{1}{K} \sum_k p_k` among all recalls that explain such a result, :math:`\prod_k p_k^{n_k} \ge \alpha / 2`. By
    Lagrange it has :math:`p_k = \min(1, \lambda n_k)`. For one class it equals :func:`exact_lower`, for K classes of equal size that of their
    :math:`n K` patients.
    """
    from scipy.optimize import brentq

    counts = np.asarray(patients, np.float64)
    if len(counts) == 0 or counts.min() < 1:
        return 0.0
    log_alpha = np.log((1 - LEVEL) / 2)

    def excess(log_scale: float) -> float:
        return float(counts @ np.minimum(0.0, log_scale + np.log(counts))) - log_alpha

    # lower end: all recalls are below 1; upper end: all are 1
    low = log_alpha / counts.sum() - np.log(counts).max() - 1
    while excess(low) > 0:
        low -= 1
    scale = np.exp(brentq(excess, low, -np.log(counts).min() + 1e-9, xtol=1e-13))
    return float(np.minimum(1.0, scale * counts).mean())


def exact_bounds(labels: np.ndarray, patients: np.ndarray) -> dict[str, float]:
    """Lower bounds of metrics for predictions that are all correct, from numbers of patients."""
    classes = [len(set(patients[labels == k])) for k in np.unique(labels)]
    return {
        "accuracy": exact_lower(len(set(patients))),
        "balanced_accuracy": exact_lower_balanced(classes),
    }

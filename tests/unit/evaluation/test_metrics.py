"""Metrics of counts equal metrics of repeated rows, scikit-learn and scipy: ties, near-ties, one class, no rows, censoring."""

import warnings

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics as oracle

from panther.evaluation import metrics
from panther.evaluation import survival_metrics as sm
from panther.evaluation.metrics import counted_ranks, value_metrics

RESAMPLES = 60


def resampled(n: int, seed: int) -> np.ndarray:
    """Counts (RESAMPLES, n) of draws with replacement, a draw of nobody, and everybody once."""
    rng = np.random.default_rng(seed)
    counts = np.stack([np.bincount(rng.integers(n, size=n), minlength=n) for _ in range(RESAMPLES)])
    counts[0], counts[1] = 0, 1
    return counts.astype(float)


def rows_of(counts: np.ndarray) -> np.ndarray:
    return np.repeat(np.arange(len(counts)), counts.astype(int))


def predictions(n_classes: int, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A rare last class, and scores with ties."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, n_classes, n) * (rng.random(n) < 0.6)
    scores = np.round(rng.normal(size=(n, n_classes)) + np.eye(n_classes)[labels], 1)
    return labels, np.exp(scores) / np.exp(scores).sum(1, keepdims=True)


@pytest.mark.parametrize(("n_classes", "n"), [(2, 5), (2, 40), (3, 9), (5, 30), (9, 60), (17, 60)])
def test_classification_of_counts_is_that_of_repeated_rows_to_the_last_bit(n_classes, n):
    labels, probabilities = predictions(n_classes, n, seed=n)
    counts = resampled(n, seed=1)
    result = metrics.classification_metrics(labels, probabilities, counts)
    alone = [metrics.classification_metrics(labels[r], probabilities[r]) for r in map(rows_of, counts)]
    for name, values in result.items():
        np.testing.assert_array_equal(values, [one[name] for one in alone], err_msg=name)
    assert np.isnan(result["auroc"]).sum() > 1 or n > 5  # some have one class only
    assert np.isnan(result["accuracy"]).sum() == 1  # nobody


@pytest.mark.parametrize("n_classes", [2, 4])
def test_classification_of_counts_is_scikit_learns_with_sample_weights(n_classes):
    labels, probabilities = predictions(n_classes, 80, seed=3)
    predicted, counts = probabilities.argmax(1), resampled(80, seed=4)[1:20]
    result = metrics.classification_metrics(labels, probabilities, counts)
    of = {"y_true": labels, "y_pred": predicted}
    for i, weight in enumerate(counts):
        expected = {
            "balanced_accuracy": oracle.balanced_accuracy_score(**of, sample_weight=weight),
            "weighted_f1": oracle.f1_score(**of, average="weighted", sample_weight=weight),
            "quadratic_kappa": oracle.cohen_kappa_score(labels, predicted, weights="quadratic", sample_weight=weight),
            "accuracy": oracle.accuracy_score(**of, sample_weight=weight),
            "auroc": np.mean(
                [
                    oracle.roc_auc_score(labels == k, probabilities[:, k], sample_weight=weight)
                    for k in ([1] if n_classes == 2 else range(n_classes))
                ]
            ),
        }
        assert {name: value[i] for name, value in result.items()} == pytest.approx(expected, abs=1e-12)


def test_a_resample_of_one_class_has_no_auroc_and_a_score_that_is_nan_no_rank():
    positive, score = np.array([True, True, False, False]), np.array([0.9, np.nan, 0.1, 0.5])
    counts = np.array([[1, 0, 1, 1], [2, 0, 0, 0], [0, 0, 1, 3], [1, 1, 1, 1], [1, 0, 0, 2.0]])
    np.testing.assert_array_equal(metrics.binary_auroc(positive, score, counts), [1, np.nan, np.nan, np.nan, 1])
    labels = np.array([0, 0, 1, 2])
    result = metrics.classification_metrics(labels, np.eye(3)[[0, 1, 1, 0]], np.array([[1, 1, 0, 0], [1, 0, 1, 0.0]]))
    np.testing.assert_array_equal(result["auroc"], [np.nan, 1])
    np.testing.assert_array_equal(result["balanced_accuracy"], [0.5, 1])


def survival(n: int, seed: int, events: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tied times, and risks in chains of near-ties."""
    rng = np.random.default_rng(seed)
    time, event = np.ceil(rng.exponential(8, n)), rng.random(n) < events
    steps = rng.choice([0.3e-8, 0.9e-8, 1e-8, np.nextafter(1e-8, 1), 2e-8, 0.1], n)
    return time, event, rng.permutation(np.cumsum(steps))


@pytest.mark.parametrize(("n", "events"), [(6, 0.3), (40, 0.1), (60, 0.6), (30, 1.0), (12, 0.0)])
def test_both_c_indices_of_counts_are_those_of_repeated_rows(n, events):
    time, event, risk = survival(n, n, events)
    known_time, known_event, _ = survival(200, 1, 0.5)
    counts = resampled(n, seed=2)
    pairs = sm.comparable_pairs(time, event, risk, counts)
    uno = pairs.concordance(sm.uno_weights(time[pairs.index], (known_time, known_event)))
    for i, rows in enumerate(map(rows_of, counts)):
        alone = sm.comparable_pairs(time[rows], event[rows], risk[rows])
        assert pairs.concordance()[i] == pytest.approx(alone.concordance(), abs=0, nan_ok=True)
        weight = sm.uno_weights(time[rows][alone.index], (known_time, known_event))
        assert uno[i] == pytest.approx(alone.concordance(weight), abs=1e-14, nan_ok=True)
    assert np.isnan(pairs.concordance()[0])
    assert np.isnan(pairs.concordance()).all() == (events == 0)


def test_pairs_are_counted_in_blocks_as_at_once(monkeypatch):
    time, event, risk = survival(50, 3, 0.5)
    counts = resampled(50, seed=5)
    whole = sm.comparable_pairs(time, event, risk, counts)
    monkeypatch.setattr(sm, "PAIRS", 120)
    np.testing.assert_array_equal(sm.comparable_pairs(time, event, risk, counts).right, whole.right)


def test_the_mean_of_defined_values_is_that_of_the_list_without_the_others():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(300, 15))
    values[rng.random(values.shape) < rng.random((300, 1))] = np.nan
    values[0] = np.nan
    with warnings.catch_warnings(action="ignore"):
        expected = [np.mean(row[~np.isnan(row)]) for row in values]
    np.testing.assert_array_equal(metrics.mean_of_defined(values), expected)
    assert metrics.mean_of_defined(np.array([1.0, np.nan, 2.0])) == 1.5
    assert np.isnan(metrics.mean_of_defined(np.array([np.nan])))


RNG = np.random.default_rng(0)


def numbers(n: int = 30) -> tuple[np.ndarray, np.ndarray]:
    """Values with ties, around a large mean."""
    truth = RNG.integers(8, size=n) + 1e6
    return truth, truth + np.round(RNG.normal(0, 2, n))


def scipy_metrics(truth: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    return {
        "pearson": stats.pearsonr(truth, predicted).statistic,
        "spearman": stats.spearmanr(truth, predicted).statistic,
        "r2": oracle.r2_score(truth, predicted),
        "mae": oracle.mean_absolute_error(truth, predicted),
    }


def test_counts_are_rows_repeated_so_often():
    truth, predicted = numbers()
    drawn = RNG.integers(30, size=(50, 30))
    counts = np.stack([np.bincount(rows, minlength=30) for rows in drawn]).astype(float)
    result = value_metrics(truth, predicted, counts)
    for i, rows in enumerate(drawn):
        assert {k: v[i] for k, v in result.items()} == pytest.approx(
            scipy_metrics(truth[rows], predicted[rows]), abs=1e-9
        )
    ranks = counted_ranks(predicted, counts)
    for i, rows in enumerate(drawn):
        np.testing.assert_array_equal(ranks[i][np.sort(rows)], stats.rankdata(predicted[np.sort(rows)]))


def test_constant_values_have_no_correlation_and_a_constant_truth_no_r2():
    truth = np.array([1.0, 2.0, 3.0])
    result = value_metrics(truth, np.full(3, 0.1))
    assert np.isnan([result["pearson"], result["spearman"]]).all()
    assert np.isfinite([result["r2"], result["mae"]]).all()
    alone = value_metrics(truth, truth, np.array([[0.0, 4.0, 0.0]]))
    assert np.isnan([alone["pearson"][0], alone["r2"][0]]).all()
    assert alone["mae"][0] == 0

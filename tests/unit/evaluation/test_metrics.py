"""Classification metrics against scikit-learn."""

import numpy as np
import pytest
from sklearn import metrics as oracle

from panther.evaluation import metrics


def predictions(n_classes: int, seed: int, n: int = 120) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.choice(n_classes, n, p=rng.dirichlet(np.ones(n_classes) * 2))
    logits = np.round(rng.normal(size=(n, n_classes)) + 1.2 * np.eye(n_classes)[labels], 1)  # rounding makes ties
    return labels, np.exp(logits) / np.exp(logits).sum(1, keepdims=True)


@pytest.mark.parametrize("n_classes", [2, 3, 6])
@pytest.mark.parametrize("seed", range(4))
def test_every_metric_is_scikit_learns(n_classes, seed):
    labels, probabilities = predictions(n_classes, seed)
    predicted = probabilities.argmax(1)
    every = np.arange(n_classes)
    found = metrics.classification_metrics(labels, probabilities)
    assert found["balanced_accuracy"] == pytest.approx(oracle.balanced_accuracy_score(labels, predicted), abs=1e-12)
    assert found["weighted_f1"] == pytest.approx(oracle.f1_score(labels, predicted, average="weighted"), abs=1e-12)
    kappa = oracle.cohen_kappa_score(labels, predicted, weights="quadratic", labels=every)
    assert found["quadratic_kappa"] == pytest.approx(kappa, abs=1e-12)
    assert found["accuracy"] == pytest.approx(oracle.accuracy_score(labels, predicted), abs=1e-12)
    np.testing.assert_array_equal(
        metrics.confusion(labels, predicted, n_classes), oracle.confusion_matrix(labels, predicted, labels=every)
    )
    if n_classes == 2:
        expected = oracle.roc_auc_score(labels, probabilities[:, 1])
    else:
        expected = oracle.roc_auc_score(labels, probabilities, multi_class="ovr", average="macro", labels=every)
    assert found["auroc"] == pytest.approx(expected, abs=1e-12)


def test_a_class_absent_from_the_truth_is_not_averaged_over():
    labels, probabilities = predictions(3, 0)
    keep = labels != 2
    found = metrics.classification_metrics(labels[keep], probabilities[keep])
    recalls = [np.mean(probabilities[keep].argmax(1)[labels[keep] == k] == k) for k in (0, 1)]
    assert found["balanced_accuracy"] == pytest.approx(np.mean(recalls))
    assert np.isfinite(found["auroc"])


def test_one_class_only_leaves_auroc_undefined_and_nothing_raises():
    found = metrics.classification_metrics(np.zeros(5, int), np.tile([0.7, 0.3], (5, 1)))
    assert np.isnan(found["auroc"])
    assert found["balanced_accuracy"] == 1.0


def test_perfect_constant_and_reversed_scores():
    positive = np.array([True, True, False, False])
    assert metrics.binary_auroc(positive, np.array([4.0, 3, 2, 1])) == 1.0
    assert metrics.binary_auroc(positive, np.array([1.0, 2, 3, 4])) == 0.0
    assert metrics.binary_auroc(positive, np.ones(4)) == 0.5

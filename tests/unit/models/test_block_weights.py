"""Probes weigh the statistics of an embedding by inner cross-validation without dividing patients."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from panther.cohort.covariates import COVARIATES
from panther.models.probes import NOT_NEEDED, block_weightings, fit_logistic

WIDE, NARROW = (6, 90, 90), (2, 5, 5)  # numbers of each block: more, or fewer, than there are patients


def cohort(sizes: tuple[int, ...], informative: int, n: int = 60, seed: int = 0, strength: float = 1.5):
    """Rows of several blocks of equal variance; one of them tells the class."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(n) % 2)
    parts = [rng.normal(size=(n, size)) / np.sqrt(size) for size in sizes]
    parts[informative][:, 0] += strength * labels
    blocks = np.repeat([f"block {b}" for b in range(len(sizes))], sizes)
    return np.hstack(parts) + 2.0, labels, blocks


def test_equal_weights_or_covariates_stand_first_and_an_embedding_has_to_earn_its_share():
    plain = block_weightings(["a", "b", "c", "d"])
    assert len(plain) == 9
    np.testing.assert_allclose(plain[0].shares, 0.25)
    result = block_weightings(["pi", "mu", COVARIATES])
    np.testing.assert_array_equal(result[0].shares, [0, 0, 1])
    np.testing.assert_allclose([w.shares[2] for w in result[1:]], [0.9, 0.7, 0.5, 0.3, 0.1])
    for weightings in (plain, result):
        np.testing.assert_allclose([w.shares.sum() for w in weightings], 1.0)
        assert sum(w.prior for w in weightings) == pytest.approx(1.0)


def test_optional_blocks_can_be_left_out_and_have_to_earn_their_share():
    names = ["0 pi", "0 mu", "+1 ", "+2 "]
    result = block_weightings(names)
    without = [w for w in result if not w.shares[2:].any()]
    assert [w.shares[:2].tolist() for w in without] == [w.shares.tolist() for w in block_weightings(names[:2])]
    assert result[: len(without)] == without
    assert sum(w.prior for w in without) == pytest.approx(NOT_NEEDED)
    assert sum(w.prior for w in result) == pytest.approx(1.0)
    np.testing.assert_allclose([w.shares.sum() for w in result], 1.0)
    used = {tuple(w.shares[2:] > 0) for w in result}
    assert used == {(False, False), (True, False), (False, True), (True, True)}
    few = [w.shares.tolist() for w in block_weightings(["0 ", "+1 "])]
    assert few == [[1, 0], [0.5, 0.5], [0, 1], pytest.approx([0.7, 0.3]), pytest.approx([0.3, 0.7])]


def test_an_optional_block_of_noise_changes_little_and_an_informative_one_is_used():
    """Noise in a probe that cannot leave it out costs; a block beside an embedding of noise is what there is."""
    rng = np.random.default_rng(5)
    labels = rng.permutation(np.arange(200) % 2)
    caught = rng.normal(size=(200, 40)) / np.sqrt(40)
    caught[:, 0] += 0.9 * labels
    noise = rng.normal(size=(200, 90)) / np.sqrt(90)
    train, test = np.arange(100), np.arange(100, 200)

    def scores(parts: list[np.ndarray], names: list[str]) -> np.ndarray:
        rows, blocks = np.hstack(parts), np.repeat(names, [part.shape[1] for part in parts])
        logits = fit_logistic(rows[train], labels[train], 2, blocks=blocks).logits(rows[test])
        return logits[:, 1] - logits[:, 0]

    alone = scores([caught[:, :20], caught[:, 20:]], ["0 a", "0 b"])
    optional = scores([caught[:, :20], caught[:, 20:], noise], ["0 a", "0 b", "+1 "])
    beside = scores([caught[:, :20], caught[:, 20:], noise], ["0 a", "0 b", "1 "])
    assert np.corrcoef(alone, optional)[0, 1] > 0.99
    assert np.corrcoef(alone, optional)[0, 1] > np.corrcoef(alone, beside)[0, 1]
    needed = scores([noise[:, :45], noise[:, 45:], caught], ["0 a", "0 b", "+1 "])
    assert ((needed > 0) == (labels[test] == 1)).mean() > 0.85


def test_an_embedding_of_noise_leaves_covariates_as_they_are():
    rng = np.random.default_rng(4)
    clinic, noise = rng.normal(size=(120, 2)), rng.normal(size=(120, 60))
    labels = (clinic[:, 0] + 0.7 * rng.normal(size=120) > 0).astype(int)
    blocks = np.array(["embedding"] * 60 + [COVARIATES] * 2)
    probe = fit_logistic(np.hstack([noise, clinic]), labels, 2, blocks=blocks)
    alone = fit_logistic(clinic, labels, 2)
    assert probe.shares["embedding"] < 0.1
    both = probe.logits(np.hstack([noise, clinic])), alone.logits(clinic)
    scores = [logits[:, 1] - logits[:, 0] for logits in both]
    assert np.corrcoef(scores)[0, 1] > 0.95


@pytest.mark.parametrize("sizes", [WIDE, NARROW], ids=["wide", "narrow"])
def test_with_one_penalty_blocks_have_equal_weights_and_the_model_is_scikit_learns(sizes):
    x, labels, blocks = cohort(sizes, 1)
    probe = fit_logistic(x, labels, 2, strengths=[0.3], blocks=blocks)
    centred = x - x.mean(0)
    variance = [(centred[:, blocks == b] ** 2).sum(1).mean() for b in dict.fromkeys(blocks.tolist())]
    alike = centred / np.sqrt(np.repeat(np.array(variance) * 3, sizes))
    expected = LogisticRegression(C=1 / 0.3, max_iter=5000, tol=1e-10).fit(alike, labels).decision_function(alike)
    logits = probe.logits(x)
    np.testing.assert_allclose(logits[:, 1] - logits[:, 0], expected, atol=1e-3)
    assert probe.shares == pytest.approx({f"block {b}": 1 / 3 for b in range(3)})


@pytest.mark.parametrize("informative", [0, 1, 2])
def test_the_informative_block_gets_the_largest_share_and_the_test_score_rises(informative):
    gain, shares = [], []
    for seed in range(4):
        x, labels, blocks = cohort(WIDE, informative, n=200, seed=seed, strength=1.0)
        train, test = np.arange(100), np.arange(100, 200)
        weighed = fit_logistic(x[train], labels[train], 2, blocks=blocks)
        plain = fit_logistic(x[train], labels[train], 2)
        right = [(p.logits(x[test]).argmax(1) == labels[test]).mean() for p in (weighed, plain)]
        gain.append(right[0] - right[1])
        shares.append(list(weighed.shares.values()))
    assert np.mean(shares, 0).argmax() == informative
    assert np.mean(gain) >= -0.01


def test_a_constant_block_is_left_out_and_one_block_alone_is_not_weighed():
    x, labels, blocks = cohort((4, 80), 1)
    x[:, :4] = 7.0
    probe = fit_logistic(x, labels, 2, blocks=blocks)
    assert probe.shares == {}
    np.testing.assert_allclose(probe.logits(x), fit_logistic(x, labels, 2).logits(x), atol=1e-6)


def test_slides_of_one_patient_in_two_inner_folds_choose_a_penalty_that_overfits():
    """Each patient has four nearly equal slides and a random label: only a strong penalty is right."""
    rng = np.random.default_rng(0)
    patients = np.repeat(np.arange(20), 4)
    x = rng.normal(size=(20, 100))[patients] + 0.05 * rng.normal(size=(80, 100))
    labels = rng.permutation(np.arange(20) % 2)[patients]
    divided, together = fit_logistic(x, labels, 2), fit_logistic(x, labels, 2, groups=patients)
    assert divided.strength <= 0.01
    assert together.strength >= 10 * divided.strength
    assert min(divided.scores.values()) < 0.3 * min(together.scores.values())

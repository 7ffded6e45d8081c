"""Agreement of prototypes and classes, against scikit-learn and scipy on the patches themselves."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from known_regions import SIDE, write_bag
from scipy.stats import spearmanr
from sklearn.metrics import (
    adjusted_mutual_info_score,
    adjusted_rand_score,
    f1_score,
    precision_recall_fscore_support,
    roc_auc_score,
)

from panther.errors import InputError
from panther.explain.concordance.agreement import (
    UNKNOWN,
    adjusted_information,
    adjusted_rand,
    agreement,
    contingency,
    left_out_accuracy,
    majority,
    match_tumour,
    rank_correlation,
    tissue_of,
)
from panther.explain.concordance.tissue_classifier import read_labels
from panther.storage.readers import open_bag


def patches(seed=0, n=400, c=6, k=3):
    """Prototype and class of n patches that agree in part."""
    rng = np.random.default_rng(seed)
    prototype = rng.integers(c, size=n)
    noise = rng.random(n) < 0.3
    return prototype, np.where(noise, rng.integers(k, size=n), prototype % k)


def test_scores_equal_those_of_scikit_learn_on_the_patches():
    prototype, tissue = patches()
    counts = contingency(prototype, tissue, (6, 3))
    labels = majority(counts)
    found, claimed = agreement(counts, labels), labels[prototype]
    assert found.accuracy == pytest.approx((claimed == tissue).mean())
    precision, recall, f1, support = precision_recall_fscore_support(tissue, claimed)
    assert [one.precision for one in found.per_class] == pytest.approx(precision)
    assert [one.recall for one in found.per_class] == pytest.approx(recall)
    assert [one.f1 for one in found.per_class] == pytest.approx(f1)
    assert [one.patches for one in found.per_class] == support.tolist()
    assert found.ari == pytest.approx(adjusted_rand_score(tissue, prototype))
    assert found.ami == pytest.approx(adjusted_mutual_info_score(tissue, prototype))
    assert found.ari_named == pytest.approx(adjusted_rand_score(tissue, claimed))
    assert found.ami_named == pytest.approx(adjusted_mutual_info_score(tissue, claimed))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2)), min_size=2, max_size=60))
def test_indices_of_any_table_equal_those_of_the_labels(pairs):
    first, second = np.array(pairs).T
    # where all patches are parts of their own scikit-learn's answer hangs on the last digit
    assume(len(set(second.tolist())) < len(second))
    counts = contingency(first, second, (5, 3))
    assert adjusted_rand(counts) == pytest.approx(adjusted_rand_score(first, second), abs=1e-9)
    assert adjusted_information(counts) == pytest.approx(adjusted_mutual_info_score(first, second), abs=1e-6)


def test_prototypes_that_have_no_patches_are_unknown_and_their_patches_elsewhere_count_as_wrong():
    counts = np.array([[5, 1], [0, 0], [0, 4]])
    assert majority(counts).tolist() == [0, UNKNOWN, 1]
    assert agreement(counts, np.array([0, 1, UNKNOWN])).accuracy == pytest.approx(0.5)
    empty = agreement(np.zeros((2, 2), int), np.array([0, 1]))
    assert (empty.accuracy, empty.ari, empty.ami) == (None, None, None)


def test_naming_by_other_slides_excludes_the_slide_itself():
    slides = [np.array([[8, 2], [0, 0]]), np.array([[1, 9], [0, 0]]), np.array([[2, 8], [0, 0]])]
    # without the first slide C0 is class 1: 2 of its 10 are right; the others are named by a sum of 10:10 and 9:11
    assert left_out_accuracy(slides) == pytest.approx((2 + 1 + 8) / 30)
    assert left_out_accuracy(slides[:1]) is None


def test_the_tumour_prototype_is_the_heaviest_and_is_judged_as_scipy_and_scikit_learn_would():
    rng = np.random.default_rng(1)
    probability = rng.random(200)
    probability[:20] = np.nan
    rows = rng.dirichlet(np.ones(4), 200)
    rows[:, 2] += np.nan_to_num(probability)
    rows /= rows.sum(1, keepdims=True)
    match = match_tumour(rows, np.array([0.5, 0.1, 0.3, 0.1]), probability, [1, 2])
    assert match is not None
    known, positive = probability[20:], probability[20:] >= 0.5
    assert (match.prototype, match.weight) == (2, 0.3)
    assert match.auroc == pytest.approx(roc_auc_score(positive, rows[20:, 2]))
    assert match.spearman == pytest.approx(spearmanr(known, rows[20:, 2]).statistic)
    assert match.dice == pytest.approx(f1_score(positive, rows[20:, 2] >= 0.5))
    assert match.auroc_all == pytest.approx(roc_auc_score(positive, rows[20:, [1, 2]].sum(1)))
    assert match.positive == pytest.approx(positive.mean())
    constant = match_tumour(np.ones((4, 1)), np.ones(1), np.zeros(4), [0])
    assert (constant.auroc, constant.spearman) == (None, None)
    assert rank_correlation(np.arange(3), np.ones(3)) is None


def labels_file(folder, rows):
    path = folder / "labels.csv"
    path.write_text(f"slide_id,x,y,label\n{rows}")
    return path


def test_labels_are_matched_by_slide_and_corner_and_other_patches_stay_unknown(tmp_path):
    bag = open_bag(write_bag(tmp_path / "007.h5", np.ones((3, 2)), np.array([[0, 0], [SIDE, 0], [0, SIDE]])))
    labels = read_labels(labels_file(tmp_path, f"007.svs,{SIDE},0,tumour\n007,0,{SIDE}.0,fat\nother,0,0,fat\n"))
    assert labels.classes == ("fat", "tumour")
    assert tissue_of(labels.label(bag)).tolist() == [UNKNOWN, 1, 0]
    assert labels.to_dict()["labels"] == 3


@pytest.mark.parametrize(
    ("rows", "culprit"),
    [
        ("s,0,0,a\ns,0,0,b\n", r"\(0, 0\)"),
        ("s,0,0,a\n", "'a'"),
        ("s,0,0,a\ns,,1,b\n", "line 3"),
        ("s,0,0,a\ns,1,1,\n", "line 3"),
        ("s,5,5,a\ns,6,6,b\n", r"\(5, 5\).*\(10, 10\)"),  # other places
        ("t,5,5,a\nt,6,6,b\n", "slide s"),
    ],
)
def test_labels_that_cannot_be_used_are_refused(tmp_path, rows, culprit):
    bag = open_bag(write_bag(tmp_path / "s.h5", np.ones((2, 2)), np.array([[10, 10], [70, 10]])))
    with pytest.raises(InputError, match=culprit):
        read_labels(labels_file(tmp_path, rows)).label(bag)


def test_bags_without_coordinates_are_refused(tmp_path):
    torch.save(torch.ones(2, 2), tmp_path / "n.pt")
    with pytest.raises(InputError, match=r"n\.pt"):
        read_labels(labels_file(tmp_path, "n,5,5,a\nn,6,6,b\n")).label(open_bag(tmp_path / "n.pt"))

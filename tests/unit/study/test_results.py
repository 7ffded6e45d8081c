"""From predictions to tables: intervals, p-values, ties and perfect scores."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from panther.cohort.targets import Classes
from panther.evaluation.intervals import intervals, resample
from panther.models.settings import Named
from panther.models.tasks import Classification
from panther.study.evaluate import _resampled, _summary
from panther.study.evaluations import WHERE, Evaluation, Members, Pair, compared
from panther.study.file import Cell
from panther.study.tables import below_chance, markdown, one_class, verdicts
from panther.study.training import Trained

NAMES = ("a", "b")


def judged(
    scores: np.ndarray, labels: np.ndarray, *, fold: int = 0, seed: int = 1, method: str = "panther"
) -> Evaluation:
    """Predictions of one fold and seed as `panther run` holds them."""
    cell = Cell(
        encoder="uni",
        method=Named(name=method),
        head=Named(name="probe"),
        loss=Named(name="cross-entropy"),
        n_prototypes=4,
        train_size=1.0,
        seed=seed,
    )
    probability = 1 / (1 + np.exp(-scores))
    prediction = {"probabilities": np.stack([1 - probability, probability], 1)}
    ids = tuple(f"P{fold}-{i}" for i in range(len(labels)))
    trained = Trained(cell, fold, Path("model.npz"), Path("model.safetensors"))
    target = Classes(NAMES, labels)
    return Evaluation(trained, "test", "", "", Classification(NAMES), prediction, target, ids, ids, None)


def by_metric(first: Members, second: Members, number: int = 1) -> dict[str, dict[str, float]]:
    """Rows of the comparison of two methods, by metric."""
    pair = Pair(first[0].group(), (first, second))
    rows = compared(pair, {side: _resampled(side, number) for side in pair.sides})
    return {row["metric"]: row for row in rows}


def method_with_fold_effects(rng: np.random.Generator, folds: int, seeds: int) -> Members:
    """A method that is lucky in some folds and not in others, whatever the seed of its training."""
    members = []
    labels = np.arange(30) % 2
    for fold in range(folds):
        luck = rng.normal(0, 1, 30)  # of these patients, for all seeds
        for seed in range(seeds):
            scores = labels + luck + rng.normal(0, 0.2, 30)
            members.append(judged(scores, labels, fold=fold, seed=seed))
    return tuple(members)


@pytest.mark.parametrize(("folds", "seeds"), [(5, 5), (8, 3)])
def test_equal_methods_seldom_differ_however_many_seeds_each_fold_has(folds, seeds):
    rng = np.random.default_rng(0)
    p = [
        by_metric(*(method_with_fold_effects(rng, folds, seeds) for _ in range(2)), number=100)["auroc"]["p_value"]
        for _ in range(40)
    ]
    assert np.mean(np.array(p) < 0.05) <= 0.05
    assert np.mean(p) > 0.3  # and it still says something


def cross_validated(rng: np.random.Generator, labels: np.ndarray, folds: int = 5) -> Members:
    """Nearest centroids, trained on noise in all other folds."""
    x = rng.normal(size=(len(labels), 30))
    members = []
    for fold in range(folds):
        test = np.arange(len(labels)) // 2 % folds == fold
        way = x[~test & (labels == 1)].mean(0) - x[~test & (labels == 0)].mean(0)
        members.append(judged(x[test] @ way, labels[test], fold=fold))
    return tuple(members)


@pytest.mark.parametrize("metric", ["auroc", "balanced_accuracy"])
def test_models_that_learn_from_each_others_test_patients_do_not_make_intervals_too_sure(metric):
    labels, p, covered, narrow = np.arange(80) % 2, [], [], []
    for seed in range(120):
        rng = np.random.default_rng(seed)
        first, second = (cross_validated(rng, labels) for _ in range(2))
        p.append(by_metric(first, second, number=200)[metric]["p_value"])
        resampled = _resampled(first, 200)
        result = intervals(resampled)[metric]
        covered.append(result.low <= 0.5 <= result.high)
        half = (result.high - result.low) / 3  # as if patients were all that varies
        narrow.append(abs(result.value - 0.5) <= half)
    assert np.mean(np.array(p) < 0.05) <= 0.06
    assert np.mean(covered) >= 0.93
    assert np.mean(narrow) < 0.9


def test_only_folds_of_different_patients_are_corrected():
    rng = np.random.default_rng(3)
    members = method_with_fold_effects(rng, 4, 1)
    width = {}
    for name, side in {
        "folds": members,
        "external": tuple(replace(one, part="test_elsewhere") for one in members),
        "one test set": members[:1],
        "the same patients": tuple(replace(one, patients=members[0].patients) for one in members),
    }.items():
        drawn = _resampled(side, 400).drawn["auroc"]
        plain = np.concatenate([np.array(one.patients) for one in side])
        ends = np.cumsum([len(one.ids) for one in side])[:-1]

        def measure(counts, side=side, ends=ends):
            parts = zip(side, np.split(counts, ends, axis=-1), strict=True)
            return {"m": np.stack([one.judge(drawn)["auroc"] for one, drawn in parts]).mean(0)}

        width[name] = drawn.std() / resample(measure, plain, 400).drawn["m"].std()
    assert width.pop("folds") == pytest.approx((1 + 4 / 3) ** 0.5)
    assert list(width.values()) == pytest.approx([1, 1, 1])


def test_few_patients_with_different_predictions_have_an_exact_p_value():
    labels = np.arange(40) % 2
    right = np.where(labels == 1, 3.0, -3.0)
    for wrong, expected in ((4, 0.125), (6, 0.03125)):
        worse = right * np.where(np.arange(40) < wrong, -1, 1)
        pair = tuple((judged(scores, labels),) for scores in (right, worse))
        result = by_metric(*pair, number=1000)
        assert result["balanced_accuracy"]["p_value"] == pytest.approx(expected, abs=0.03)
        assert result["balanced_accuracy"]["p_value"] >= expected
    twice = tuple(side + tuple(replace(one, part="test") for one in side) for side in pair)  # two seeds, one patient
    assert by_metric(*twice, number=1000)["balanced_accuracy"]["p_value"] >= 0.03125
    ten = (judged(right * np.where(np.arange(40) < 12, -1, 1), labels),)
    assert by_metric(pair[0], ten, number=1000)["weighted_f1"]["p_value"] < 0.01


def test_the_best_of_several_rows_has_a_corrected_score():
    labels = np.arange(40) % 2
    summary = summary_of({"panther": 2, "ot": 4, "h2t": 9}, labels, number=200)
    assert (summary.query("metric != 'accuracy'")["of_rows"] == 3).all()
    row = summary.query("metric == 'balanced_accuracy'").iloc[0]
    assert row["selected_low"] < row["selected"] <= 0.95
    (best, *_) = verdicts(summary, ["balanced_accuracy"])
    assert best.startswith("Best of 3 rows (test, Bal. acc.): 0.950, PANTHER + probe; ")
    assert f"{row['selected_low']:.3f} to {row['selected_high']:.3f}" in best
    tie = verdicts(summary_of({"panther": 2, "ot": 2, "h2t": 9}, labels), ["balanced_accuracy"])
    assert tie == ["Best of 3 rows (test, Bal. acc.): 0.950, a tie between PANTHER + probe and OT + probe."]
    alone = summary_of({"panther": 2}, labels, number=200)
    assert alone[["of_rows", "selected"]].isna().all(axis=None)


def test_intervals_stay_inside_the_range_of_the_metric():
    rng = np.random.default_rng(0)
    labels = np.arange(30) % 2
    members = tuple(judged(labels * 2.5 + rng.normal(size=30), labels, fold=fold) for fold in range(5))
    resampled = _resampled(members, 300)
    assert intervals(resampled)["auroc"].high > 1
    metrics = [{**dict(zip(WHERE, members[0].group(), strict=True)), "metric": "auroc", "value": 0.97}]
    summary = _summary(pd.DataFrame(metrics), {members[0].group(): members}, {members: resampled})
    assert summary["ci_high"].item() == 1


def summary_of(methods: dict[str, float], labels: np.ndarray, number: int = 0) -> pd.DataFrame:
    """Summary of methods that get all but so many of the samples right."""
    rows, groups = [], {}
    for method, wrong in methods.items():
        scores = np.where(labels == 1, 3.0, -3.0)
        scores[: int(wrong)] *= -1
        j = judged(scores, labels, method=method)
        groups[j.group()] = (j,)
        where = {**j.trained.cell.columns(), "fold": 0, "part": "test", "subgroup": "", "by": "", "n": len(labels)}
        rows += [{**where, "metric": k, "value": v} for k, v in j.task.metrics(j.prediction, j.target).items()]
    metrics = pd.DataFrame(rows)
    return _summary(metrics, groups, {members: _resampled(members, number) for members in groups.values()})


def test_a_perfect_score_comes_with_its_exact_bound_and_a_warning():
    labels = np.array([0] * 50 + [1] * 8)
    summary = summary_of({"panther": 0, "ot": 5}, labels)
    bounds = summary.set_index(["method", "metric"])["exact_low"]
    assert bounds["panther", "accuracy"] == pytest.approx(0.025 ** (1 / 58))
    assert 0.8 < bounds["panther", "balanced_accuracy"] < 0.025 ** (1 / 58)  # eight patients of class b
    assert np.isnan(bounds["panther", "auroc"])
    assert bounds["ot"].isna().all()
    text = markdown(summary, ["balanced_accuracy", "auroc"])
    assert "resampling cannot see the error of a perfect score; from 58 patients without an error" in text
    assert f"is {bounds['panther', 'balanced_accuracy']:.3f}" in text
    assert "Best of 2 rows (test, AUROC): 1.000, PANTHER + probe." in text
    assert "its interval is no evidence" in text


def test_rows_that_predict_one_class_only_are_named():
    cell = {
        "encoder": "uni",
        "loss": "ce",
        "n_prototypes": 0,
        "train_size": 1.0,
        "seed": 1,
        "part": "test",
        "head": "own",
    }
    rows = [
        {**cell, "method": method, "fold": fold, "predicted": "high" if flat or patient else "low"}
        for method, flat_folds in {"abmil": {0, 1}, "dsmil": {1}, "ilra": set()}.items()
        for fold, flat in ((fold, fold in flat_folds) for fold in range(3))
        for patient in range(4)
    ]
    (sentence,) = one_class(pd.DataFrame(rows))
    assert "ABMIL" in sentence
    assert "high in 2 of 3" in sentence
    assert one_class(pd.DataFrame(rows).drop(columns="predicted")) == []


def test_a_reference_below_chance_is_named():
    summary = summary_of({"panther": 30, "ot": 4}, np.arange(40) % 2)
    (line,) = below_chance(summary, pd.DataFrame({"part": ["test"]}), ["auroc"])
    assert "PANTHER + probe (test, AUROC) is below chance: 0.250, chance 0.500" in line

"""From predictions to tables: what counts as evidence, what is a tie, what a perfect score says."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from panther.cohort.targets import Classes
from panther.evaluation.intervals import Interval, wilcoxon
from panther.models.named import Named
from panther.models.tasks import Classification
from panther.study.comparisons import Pair, compared
from panther.study.evaluate import _resampled, _summary
from panther.study.evaluations import Evaluation, Members
from panther.study.file import Cell
from panther.study.tables import markdown, one_class, verdicts
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


def by_metric(first: Members, second: Members) -> dict[str, dict[str, float]]:
    """Rows of the comparison of two methods, by metric."""
    pair = Pair(first[0].group(), second[0].group(), (first, second))
    rows = compared(pair, {side: _resampled(side, 1) for side in pair.sides})
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
        by_metric(*(method_with_fold_effects(rng, folds, seeds) for _ in range(2)))["auroc"]["p_wilcoxon"]
        for _ in range(40)
    ]
    assert np.mean(np.array(p) < 0.05) <= 0.05
    assert np.mean(p) > 0.3  # and it still says something


def test_the_test_over_folds_is_that_of_the_folds_means():
    rng = np.random.default_rng(1)
    pair = [method_with_fold_effects(rng, 6, 4) for _ in range(2)]
    values = [[j.task.judge(j.prediction, j.target)["auroc"] for j in side] for side in pair]
    means = [np.reshape(side, (6, 4)).mean(1) for side in values]
    assert by_metric(*pair)["auroc"]["p_wilcoxon"] == pytest.approx(wilcoxon(*means))


def test_seeds_of_a_single_fold_are_no_test_over_folds():
    rng = np.random.default_rng(2)
    pair = tuple(method_with_fold_effects(rng, 1, 5) for _ in range(2))
    assert np.isnan(by_metric(*pair)["auroc"]["p_wilcoxon"])


def summary_of(methods: dict[str, float], labels: np.ndarray) -> pd.DataFrame:
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
    intervals = {key: {"balanced_accuracy": Interval(1.0, 1.0, 1.0, 100)} for key in groups}
    return _summary(metrics, intervals, groups)


def test_a_tie_for_the_best_is_told_as_a_tie():
    labels = np.arange(40) % 2
    said = verdicts(summary_of({"panther": 2, "ot": 2, "h2t": 9}, labels), ["balanced_accuracy"])
    assert said == ["Best mean (test, Bal. acc.): 0.950, a tie between PANTHER + probe and OT + probe."]
    alone = verdicts(summary_of({"panther": 2, "ot": 4}, labels), ["balanced_accuracy"])
    assert alone == ["Best mean (test, Bal. acc.): 0.950, PANTHER + probe."]


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
    assert "Best mean (test, AUROC): 1.000, PANTHER + probe." in text
    assert "its interval is no evidence" in text


def test_slides_of_one_patient_do_not_raise_the_exact_bound():
    labels = np.arange(20) % 2
    one = judged(np.where(labels == 1, 3.0, -3.0), labels)
    metrics = pd.DataFrame(
        [
            {
                **one.trained.cell.columns(),
                "fold": 0,
                "part": "test",
                "subgroup": "",
                "by": "",
                "metric": "accuracy",
                "value": 1.0,
            }
        ]
    )
    few = Evaluation(**{**vars(one), "patients": tuple(f"P{i % 4}" for i in range(20))})
    for member, patients in ((one, 20), (few, 4)):
        summary = _summary(metrics, {}, {one.group(): (member,)})
        assert summary["patients"].item() == patients
        assert summary["exact_low"].item() == pytest.approx(0.025 ** (1 / patients))


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

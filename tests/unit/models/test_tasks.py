"""Tasks: every one obeys the same contract; the registry writes the tests."""

import json

import numpy as np
import pytest
import torch

from panther.cohort.targets import Classes, Labels, Survival, Values
from panther.errors import InputError
from panther.models.tasks import (
    Classification,
    CoxSurvival,
    DiscreteSurvival,
    fit_task,
    load_task,
    tasks,
)

N = 80


def target_for(name: str, n: int = N, seed: int = 0):
    return TARGETS[tasks[name].kind](np.random.default_rng(seed), n)


TARGETS = {
    "classification": lambda rng, n: Classes(("a", "b", "c"), rng.permutation(np.arange(n) % 3)),
    "survival": lambda rng, n: Survival(rng.exponential(100.0, n) + 1, rng.random(n) < 0.6),
    "regression": lambda rng, n: Values(rng.integers(20, size=n) * 3.0 + 100),  # some are equal
    "labels": lambda rng, n: Labels(("x", "y"), rng.choice([0.0, 1.0, np.nan], size=(n, 2), p=(0.5, 0.4, 0.1))),
}


@pytest.fixture(params=tasks.names())
def name(request):
    return request.param


def test_tasks_and_targets_survive_files_and_batches(name):
    target = target_for(name)
    task = fit_task(name, target)
    assert load_task(json.loads(json.dumps(task.settings()))) == task
    batch = task.encode(target)
    assert all(len(values) == N for values in batch.values())
    back = task.decode({k: v[:10] for k, v in batch.items()})
    for field, values in vars(target.take(np.arange(10))).items():
        np.testing.assert_array_equal(getattr(back, field), values)


def test_following_the_gradient_lowers_the_loss_and_lifts_the_metric(name):
    target = target_for(name)
    task = fit_task(name, target)
    logits = torch.zeros(N, task.n_outputs, requires_grad=True)
    batch = task.encode(target)
    start = task.loss(logits, batch).item()
    optimiser = torch.optim.SGD([logits], lr=50.0)
    for _ in range(60):
        optimiser.zero_grad()
        task.loss(logits, batch).backward()
        optimiser.step()
    assert task.loss(logits, batch).item() < 0.8 * start
    result = task.metrics(task.predict(logits.detach()), target)
    assert next(iter(result.values())) > 0.9


def test_judging_by_counts_is_judging_the_rows_repeated_so_often(name):
    train, test = target_for(name, 200), target_for(name, 12, seed=1)
    task = fit_task(name, train)
    generator = torch.Generator().manual_seed(0)
    known, prediction = (task.predict(torch.randn(n, task.n_outputs, generator=generator)) for n in (200, 12))
    rows = np.random.default_rng(2).integers(12, size=(20, 4))  # four of them: some lack events or classes
    counts = np.stack([np.bincount(drawn, minlength=12) for drawn in rows]).astype(float)
    result = task.judge(prediction, test, (known, train), counts)
    assert tuple(result) == task.judged
    for i, drawn in enumerate(rows):
        alone = task.judge({k: v[drawn] for k, v in prediction.items()}, test.take(drawn), (known, train))
        assert {k: v[i] for k, v in result.items()} == pytest.approx(alone, abs=1e-14, nan_ok=True)


@pytest.mark.parametrize(("loss", "expected"), [("cox", True), ("nll", True), ("ranking", False)])
def test_brier_scores_exist_where_survival_is_predicted(loss, expected):
    train, test = target_for(loss, 200), target_for(loss, seed=1)
    task = fit_task(loss, train)
    generator = torch.Generator().manual_seed(0)
    known = task.predict(torch.randn(200, task.n_outputs, generator=generator) - 1)
    result = task.metrics(task.predict(torch.randn(N, task.n_outputs, generator=generator) - 1), test, (known, train))
    assert ("integrated_brier" in result) == expected
    assert 0 < result["time_auc"] < 1
    assert 0 < result.get("integrated_brier", 0.2) < 0.5


def test_cox_survival_is_scikit_survivals():
    from sksurv.linear_model import CoxPHSurvivalAnalysis
    from sksurv.util import Surv

    train = target_for("cox", 150)
    x = np.random.default_rng(2).normal(size=(150, 1)) - 0.3 * np.log(train.time)[:, None]
    model = CoxPHSurvivalAnalysis().fit(x, Surv.from_arrays(train.event, train.time))
    times = np.quantile(train.time, [0.2, 0.5, 0.8])
    expected = np.array([f(times) for f in model.predict_survival_function(x[:20])])
    risk = {"risk": x[:, 0] * model.coef_[0] + 11.0}  # a shift of all risks is no change
    result = CoxSurvival().survival_at({"risk": risk["risk"][:20]}, times, (risk, train))
    np.testing.assert_allclose(result, expected, rtol=1e-6)


def test_discrete_survival_passes_through_the_edges():
    task = DiscreteSurvival((10.0, 20.0))
    prediction = task.predict(torch.tensor([[0.0, 1.0, -1.0]]))
    result = task.survival_at(
        prediction, np.array([5.0, 10.0, 20.0]), ({}, Survival(np.array([50.0]), np.array([True])))
    )
    s = prediction["survival"][0]
    np.testing.assert_allclose(result[0], [(1 + s[0]) / 2, s[0], s[1]])
    assert prediction["risk"][0] == pytest.approx(-s.sum())


def test_balanced_weights_make_every_class_count_the_same():
    target = Classes(("rare", "common"), np.array([0] * 2 + [1] * 18))
    task, batch = fit_task("cross-entropy", target, class_weights="balanced"), {"label": torch.tensor(target.labels)}
    assert task.class_weights == pytest.approx((5.0, 20 / 36))
    each = -torch.log_softmax(logits := torch.randn(20, 2), 1)[torch.arange(20), batch["label"]]
    torch.testing.assert_close(task.loss(logits, batch), (each[:2].mean() + each[2:].mean()) / 2)


def test_an_external_cohort_may_name_its_classes_in_another_order():
    task = Classification(("LUAD", "LUSC"))
    external = Classes(("LUSC", "LUAD"), np.array([0, 0, 1]))
    assert task.encode(external)["label"].tolist() == [1, 1, 0]
    prediction = {"probabilities": np.array([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0]])}
    assert task.metrics(prediction, external)["accuracy"] == 1.0
    with pytest.raises(InputError, match="'NORMAL' was not trained on"):
        task.encode(Classes(("NORMAL", "LUAD"), np.array([0, 1])))


@pytest.mark.parametrize(
    ("loss", "target", "options", "sentence"),
    [
        ("mse", Values(np.full(9, 3.0)), {}, "have the value 3"),
        ("cross-entropy", Classes(("a", "b"), np.zeros(5, int)), {}, "one class"),
        ("cross-entropy", Classes(("a", "b", "c"), np.array([0, 1, 1])), {}, "class c"),
        ("cross-entropy", Classes(("a", "b"), np.array([0, 1])), {"class_weights": "even"}, "class_weights"),
        ("cox", Survival(np.ones(4), np.zeros(4, bool)), {}, "event"),
        ("cox", Survival(np.empty(0), np.empty(0, bool)), {}, "0 training patients"),
        ("cox", Classes(("a", "b"), np.array([0, 1])), {}, "'cox'.*cross-entropy"),
        ("nll", target_for("nll"), {"bins": 3}, "'bins'.*'n_bins'"),
        ("nll", target_for("nll"), {"alpha": 2.0}, "alpha"),
        ("cox", target_for("cox"), {"ties": "exact"}, "'exact'"),
        ("hinge", target_for("nll"), {}, "'hinge'"),
    ],
)
def test_invalid_targets_and_settings_are_refused(loss, target, options, sentence):
    with pytest.raises(InputError, match=sentence):
        fit_task(loss, target, **options)
    with pytest.warns(UserWarning, match="too few distinct times"):
        fit_task("nll", Survival(np.array([5.0, 5.0, 5.0, 9.0]), np.ones(4, bool)))

"""The trainer: same bytes for the same seed; accumulation, early stopping, losses of models, settings of the paper."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from panther.cohort.targets import Classes, Survival
from panther.errors import InputError
from panther.models.heads import build_head
from panther.models.scaling import build_scaler
from panther.models.settings import TrainSettings, usual_training
from panther.models.tasks import fit_task
from panther.models.trainer import ArraySource, fit, predict_logits

pytestmark = pytest.mark.usefixtures("one_thread")

SETTINGS = TrainSettings(epochs=5, batch_size=16, learning_rate=1e-2, seed=3)


def cohort(n: int = 70, d: int = 12, seed: int = 0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, n)
    x = rng.normal(size=(n, d)).astype(np.float32)
    x[:, 0] += 2 * labels
    return x, Classes(("a", "b"), labels)


def parts(batch_size: int = 16, n: int = 70):
    x, target = cohort(n)
    task = fit_task("cross-entropy", target)
    train, val = np.arange(n - 20), np.arange(n - 20, n)
    encoded = task.encode(target)
    source = ArraySource(x, {"label": encoded["label"][train]}, batch_size, train)
    return task, source, ArraySource(x, {"label": encoded["label"][val]}, 8, val, shuffle=False)


def head(name: str = "mlp", options: dict | None = None):
    return build_head(name, (12,), 2, options or {"hidden": 8, "dropout": 0.5}, seed=0)


def same(first: nn.Module, second: nn.Module) -> bool:
    return all(
        torch.equal(a, b) for a, b in zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    )


def test_the_same_seed_gives_the_same_bytes_and_the_global_generator_is_left_alone():
    task, source, _ = parts()
    torch.manual_seed(1)
    state = torch.random.get_rng_state()
    first = fit(head(), source, task, SETTINGS)
    assert torch.equal(state, torch.random.get_rng_state())
    torch.manual_seed(2)
    assert same(first.model, fit(head(), source, task, SETTINGS).model)
    assert not same(first.model, fit(head(), source, task, replace(SETTINGS, seed=4)).model)


def test_accumulated_batches_step_as_one_large_batch():
    task, small, _ = parts(batch_size=5, n=40)
    _, large, _ = parts(batch_size=20, n=40)
    settings = replace(SETTINGS, epochs=3)
    linear = {"bias": True}
    one = fit(head("linear", linear), large, task, settings).model
    many = fit(head("linear", linear), small, task, replace(settings, accumulate=4)).model
    for a, b in zip(one.parameters(), many.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_early_stopping_waits_and_keeps_the_best_epoch_of_a_validation_part():
    task, source, val = parts()
    unjudged = fit(head(), source, task, replace(SETTINGS, patience=1, keep="best"))
    assert unjudged.epoch == len(unjudged.history) - 1 == SETTINGS.epochs - 1
    late = fit(
        head(), source, task, replace(SETTINGS, epochs=30, learning_rate=0.3, patience=1, min_epochs=20), val=val
    )
    assert len(late.history) >= 20
    settings = replace(SETTINGS, epochs=60, learning_rate=0.3, patience=3, keep="best")
    fitted = fit(head(), source, task, settings, val=val)
    curve = [row["val_loss"] for row in fitted.history]
    assert len(curve) == fitted.epoch + 1 + 3
    assert fitted.epoch == int(np.argmin(curve))
    logits, batch = predict_logits(fitted.model, val, settings)
    assert task.loss(logits, batch).item() == pytest.approx(min(curve), abs=1e-7)


def test_a_model_may_return_an_object_and_have_a_loss():
    class Instance(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bag, self.instance, self.calls = nn.Linear(12, 2), nn.Linear(12, 2), 0

        def forward(self, x, mask=None):
            return SimpleNamespace(logits=self.bag(x), instance=self.instance(x))

        def loss(self, outputs, batch, task):
            self.calls += 1
            return (task.loss(outputs.logits, batch) + task.loss(outputs.instance, batch)) / 2

    task, source, val = parts()
    model = Instance()
    start = model.instance.weight.detach().clone()
    fitted = fit(model, source, task, SETTINGS, val=val)
    assert model.calls == SETTINGS.epochs * len(source)
    assert not torch.equal(start, model.instance.weight)
    assert "val_balanced_accuracy" in fitted.history[0]


def test_memory_maps_and_scalers_give_the_same_model_and_history(tmp_path):
    x, target = cohort()
    np.save(tmp_path / "x.npy", x)
    task = fit_task("cross-entropy", target)
    scaler = build_scaler("block")(x)
    mapped = ArraySource(np.load(tmp_path / "x.npy", mmap_mode="r"), task.encode(target), 16, scaler=scaler)
    memory = ArraySource(torch.tensor(x), task.encode(target), 16, scaler=scaler)
    first = fit(head(), mapped, task, SETTINGS)
    assert same(first.model, fit(head(), memory, task, SETTINGS).model)
    assert [list(row) for row in first.history] == [["epoch", "learning_rate", "train_loss"]] * 5


def test_invalid_trainings_are_refused():
    task, source, _ = parts()
    with pytest.raises(InputError, match="The loss became"):
        fit(head("linear", {"bias": True}), source, task, replace(SETTINGS, learning_rate=1e38))
    survival = Survival(np.arange(1.0, 71), np.ones(70, bool))
    cox = fit_task("cox", survival)
    lonely = replace(SETTINGS, batch_size=1)
    with pytest.raises(InputError, match="compares patients"):
        fit(build_head("linear", (12,), 1), ArraySource(cohort()[0], cox.encode(survival), 1), cox, lonely)


def trained(**changes):
    x, target = cohort()[:2]
    task = fit_task("cross-entropy", target)
    settings = replace(SETTINGS, **changes)
    source = ArraySource(x, task.encode(target), settings.batch_size, shuffle=settings.shuffle)
    return fit(build_head("linear", (12,), task.n_outputs, seed=0), source, task, settings)


def test_biases_do_not_decay_without_decay_biases():
    decayed, free = (trained(weight_decay=50.0, decay_biases=both).model.network for both in (True, False))
    start = build_head("linear", (12,), 2, seed=0).network
    torch.testing.assert_close(decayed.weight, free.weight, rtol=0.2, atol=0.05)
    assert decayed.bias.abs().max() < 0.3 * start.bias.abs().max()
    assert free.bias.abs().max() > 0.7 * start.bias.abs().max()


def test_input_dropout_and_the_order_of_samples_are_settings_of_training():
    plain, dropped, again = (trained(**c).history for c in ({}, {"input_dropout": 0.5}, {"input_dropout": 0.5}))
    assert dropped == again
    assert dropped[-1]["train_loss"] != plain[-1]["train_loss"]
    assert trained(shuffle=False).history != plain


@pytest.mark.parametrize(
    ("kind", "network", "expected"),
    [
        # supplement, "Training details"; for networks at least a thousand steps
        ("classification", False, TrainSettings(epochs=20, batch_size=32, patience=10, keep="best")),
        ("survival", False, TrainSettings(epochs=50, batch_size=64)),
        ("labels", True, TrainSettings(batch_size=1, accumulate=32, patience=10, keep="best", min_steps=1000)),
        ("survival", True, TrainSettings(epochs=20, batch_size=1, min_steps=1000)),
    ],
)
def test_training_has_the_settings_of_the_paper(kind, network, expected):
    settings = usual_training(kind, network=network)
    assert settings == expected
    assert (settings.learning_rate, settings.weight_decay, settings.warmup_epochs, settings.seed) == (1e-4, 1e-5, 1, 1)
    one = replace(settings, epochs=11, learning_rate=1.0)
    assert [one.rate(p) for p in (0, 0.5, 1, 6, 11)] == pytest.approx([0, 0.5, 1, 0.5, 0])


@pytest.mark.parametrize(("bags", "accumulate", "epochs"), [(24, 1, 42), (48, 1, 21), (240, 4, 20), (5000, 32, 20)])
def test_a_network_takes_a_thousand_steps_in_cohorts_of_every_size_unless_a_user_names_epochs(bags, accumulate, epochs):
    usual = usual_training("classification", network=True)
    settings = usual.for_batches(bags)
    assert (settings.accumulate, settings.epochs) == (accumulate, epochs)
    assert settings.epochs * -(-bags // settings.accumulate) >= 1000
    assert usual.changed({"epochs": 3}).for_batches(bags) == replace(usual, epochs=3, accumulate=1, min_steps=0)
    assert usual.changed({"accumulate": 8}).for_batches(bags).accumulate == 8
    assert usual.changed({"seed": 2}).min_steps == 1000


@pytest.mark.parametrize(
    "bad",
    [
        {"epochs": 0},
        {"learning_rate": -1.0},
        {"keep": "first"},
        {"warmup_epochs": 99},
        {"min_epochs": 21},
        {"input_dropout": 1.0},
    ],
)
def test_impossible_settings_are_refused(bad):
    with pytest.raises(InputError, match=next(iter(bad))):
        TrainSettings(**bad)

"""Bags from disk for a trainer: the same every time, never too much in memory, nothing lost."""

import threading
import time

import numpy as np
import pytest
import torch

from mil.training import source
from panther.errors import InputError
from panther.mil import BagSource, LoadSettings
from panther.mil.loading import sampled_rows
from panther.storage.bags import BagRef
from panther.types import Bag
from reading import CountedRef, Counts

LENGTHS = (5, 9, 2, 7, 4)


@pytest.fixture
def bags() -> list[torch.Tensor]:
    return [torch.full((n, 3), float(number)) for number, n in enumerate(LENGTHS)]


def numbers(batches) -> list[int]:
    return [int(batch["y"][0]) for _, batch in batches]


def test_every_bag_comes_once_an_epoch_with_its_own_target(bags):
    batches = source(bags, {"y": torch.arange(5)}, LoadSettings())
    for inputs, batch in batches.epoch(0, 0):
        assert (inputs["x"] == float(batch["y"])).all()
        assert inputs["x"].shape == (1, LENGTHS[int(batch["y"])], 3)
    assert sorted(numbers(batches.epoch(0, 0))) == [0, 1, 2, 3, 4]
    assert len(batches) == 5


def test_epoch_and_seed_alone_decide_order_and_sample():
    bags = [torch.randn(50, 3, generator=torch.Generator().manual_seed(i)) for i in range(6)]
    settings = LoadSettings(max_patches=20, instance_dropout=0.1)
    make = lambda: source(bags, {"y": torch.arange(6)}, settings)  # noqa: E731
    used = make()
    list(used.epoch(0, 7))
    for (a, ya), (b, yb) in zip(used.epoch(3, 7), make().epoch(3, 7), strict=True):
        assert torch.equal(a["x"], b["x"])
        assert torch.equal(ya["y"], yb["y"])
    orders = {tuple(numbers(make().epoch(epoch, seed))) for epoch in range(4) for seed in range(4)}
    assert len(orders) > 10


def test_training_sees_a_part_and_evaluation_all(bags):
    settings = LoadSettings(max_patches=3, instance_dropout=0.5)
    seen = [inputs["x"].shape[1] for inputs, _ in source(bags, {"y": torch.arange(5)}, settings).epoch(0, 0)]
    assert max(seen) <= 3
    assert min(seen) >= 1
    evaluation = source(bags, {"y": torch.arange(5)}, settings.for_evaluation())
    assert [inputs["x"].shape[1] for inputs, _ in evaluation.epoch(0, 0)] == list(LENGTHS)
    assert numbers(evaluation.epoch(5, 9)) == [0, 1, 2, 3, 4]


def test_no_patch_is_seen_twice_and_one_always_stays():
    for n in (1, 2, 3, 100):
        kept = sampled_rows(n, LoadSettings(instance_dropout=0.99), torch.Generator().manual_seed(0))
        kept = torch.arange(n) if kept is None else kept
        assert len(kept) >= 1
        assert len(kept.unique()) == len(kept)


def test_bags_of_several_lengths_are_padded_and_masked(bags):
    settings = LoadSettings(batch_size=5, shuffle=False)
    ((inputs, _),) = source(bags, {"y": torch.arange(5)}, settings).epoch(0, 0)
    assert inputs["mask"].sum(-1).tolist() == list(LENGTHS)
    assert inputs["x"].shape == (5, 9, 3)


def test_float16_stays_float16_and_slides_of_a_patient_are_one_bag(tmp_path):
    for slide, n in (("a", 4), ("b", 6)):
        np.save(tmp_path / f"{slide}.npy", np.full((n, 3), n, dtype=np.float16))
    patient = BagRef("patient", (tmp_path / "a.npy", tmp_path / "b.npy"))
    for settings in (LoadSettings(), LoadSettings(max_patches=9)):
        ((inputs, _),) = BagSource([patient], {"y": torch.zeros(1)}, settings).epoch(0, 0)
        assert inputs["x"].dtype == torch.float16
        assert inputs["x"].shape == (1, min(10, settings.max_patches or 10), 3)
        assert {4.0, 6.0} == set(inputs["x"].flatten().tolist())


class Counting:
    """Bags that count how many were opened."""

    opened = 0

    def __init__(self, number: int) -> None:
        self.sample = f"bag {number}"

    def open(self) -> Bag:
        Counting.opened += 1
        return Bag(self.sample, torch.zeros(1000, 4))


@pytest.mark.parametrize("settings", [LoadSettings(read_ahead=2), LoadSettings(read_ahead=50, read_ahead_bytes=40_000)])
def test_reading_ahead_stops_at_the_limit(settings):
    Counting.opened = 0
    batches = BagSource([Counting(i) for i in range(50)], {"y": torch.arange(50)}, settings).epoch(0, 0)
    next(batches)
    time.sleep(0.3)
    assert 2 <= Counting.opened <= 5  # used, waiting (2), in the reader's hand
    batches.close()
    assert not [t for t in threading.enumerate() if t.name == "read-ahead"]


@pytest.mark.parametrize("thinned", [{}, {"max_patches": 3, "instance_dropout": 0.3}], ids=["all", "some"])
def test_bags_that_fit_are_opened_twice_and_the_others_in_every_epoch(tmp_path, bags, thinned):
    for number, bag in enumerate(bags):
        np.save(tmp_path / f"s{number}.npy", (bag + torch.arange(len(bag))[:, None]).numpy())

    def seen(held_bytes, epochs=4):
        counts = Counts()
        refs = [CountedRef(tmp_path / f"s{number}.npy", counts) for number in range(5)]
        batches = BagSource(refs, {"y": torch.arange(5)}, LoadSettings(held_bytes=held_bytes, **thinned))
        found = [inputs["x"] for epoch in range(epochs) for inputs, _ in batches.epoch(epoch, 7)]
        return found, sorted(counts.opened.count(f"s{number}") for number in range(5))

    every, opened = seen(0)
    assert opened == [4, 4, 4, 4, 4]
    held, opened = seen(1 << 20)
    assert opened == [2, 2, 2, 2, 2]
    assert all(torch.equal(a, b) for a, b in zip(every, held, strict=True))
    assert seen(sum(LENGTHS) * 3 * 4 - 1)[1] == [2, 2, 2, 2, 4]  # one too many
    assert seen(1 << 20, epochs=1)[1] == [1, 1, 1, 1, 1]


def test_a_network_that_writes_into_its_input_does_not_write_into_held_bags(tmp_path, bags):
    np.save(tmp_path / "s.npy", bags[1].numpy())
    batches = BagSource([BagRef("s", (tmp_path / "s.npy",))], {"y": torch.zeros(1)}, LoadSettings())
    for epoch in range(4):
        for inputs, _ in batches.epoch(epoch, 0):
            assert (inputs["x"] == 1).all()
            inputs["x"].zero_()


def test_a_bad_bag_is_named_where_it_would_have_come(tmp_path, bags):
    bad = torch.zeros(10, 3)
    bad[4, 1] = float("nan")
    settings = LoadSettings(shuffle=False)
    batches = source([bags[0], bad], {"y": torch.arange(2)}, settings).epoch(0, 0)
    next(batches)
    with pytest.raises(InputError, match="bag 1: row 4"):
        next(batches)
    empty = source([torch.zeros(0, 3)], {"y": torch.arange(1)}, settings)
    with pytest.raises(InputError, match="bag 0: zero patches"):
        list(empty.epoch(0, 0))


def test_large_float16_features_are_not_mistaken_for_infinite():
    batches = source([torch.full((4000, 64), 60000.0, dtype=torch.float16)], {"y": torch.arange(1)}, LoadSettings())
    assert len(list(batches.epoch(0, 0))) == 1


@pytest.mark.parametrize("wrong", [{"batch_size": 0}, {"instance_dropout": 1.0}, {"max_patches": 0}, {"read_ahead": 0}])
def test_senseless_settings_are_refused(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        LoadSettings(**wrong)


def test_targets_must_belong_to_the_bags(bags):
    with pytest.raises(InputError, match="5 bags"):
        source(bags, {"y": torch.arange(4)})

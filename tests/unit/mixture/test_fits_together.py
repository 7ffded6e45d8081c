"""Batches of mixtures as on a GPU; here by the same functions on the CPU."""

import weakref

import pytest
import torch

from mixture_bags import mixture_bag
from panther.mixture import EMSettings, fit_mixture, together
from panther.mixture.replayed import launch_replayed
from panther.types import Ragged


@pytest.fixture
def launched(monkeypatch):
    """Rows of each group that was launched."""
    groups = []

    def launch(x, *start, **keep):
        groups.append(len(x.rows if isinstance(x, Ragged) else x))
        return launch_replayed(x, *start, **keep)

    monkeypatch.setattr(together, "can_replay", lambda *_: True)
    monkeypatch.setattr(together, "launch_replayed", launch)
    return groups


@pytest.fixture
def start():
    return mixture_bag(1, 6, 3)[1], torch.ones(6), EMSettings(steps=2)


def test_bags_are_fitted_a_few_at_a_time_as_each_alone(launched, start):
    fits = together.BatchedFitter(*start)
    bags = [mixture_bag(n, 6, 3, seed=n)[0] for n in range(5, 25)]
    bags[4] = bags[4].half()  # another type than the others
    bags[12] = mixture_bag(40, 6, 3, separation=300.0)[0]  # must be repeated in float64
    waiting = [fits.add(bag) for bag in bags]
    assert [coming.is_here() for coming in waiting] == [True] * 5 + [
        False
    ] * 15  # two groups are on the GPU, or being filled
    assert launched == [sum(map(len, bags[a:b])) for a, b in ((0, 4), (4, 5), (5, 13))]  # seven are left
    for bag, coming in zip(bags, waiting, strict=True):
        found, alone = coming.wait(), fit_mixture(bag, *start)
        for a, b in zip((*found.mixture, *found[1:3]), (*alone.mixture, *alone[1:3]), strict=True):
            torch.testing.assert_close(a, b)
    assert len(launched) == 4


def test_no_more_than_two_groups_are_held(launched, start, monkeypatch):
    monkeypatch.setattr(together, "FULL_BYTES", 3 * 10 * 6 * 4)
    fits, alive = together.BatchedFitter(*start), []
    for number in range(12):
        bag = mixture_bag(10, 6, 3, seed=number)[0]
        alive.append(weakref.ref(bag))
        fits.add(bag)
        del bag
        assert sum(ref() is not None for ref in alive) <= 6
    assert launched == [30] * 4


def test_a_bag_that_is_waited_for_at_once_is_fitted_alone(launched, start):
    fits, bags = together.BatchedFitter(*start), [mixture_bag(n, 6, 3, seed=n)[0] for n in (30, 20)]
    for bag in bags:
        assert torch.equal(fits.add(bag).wait().mass, fit_mixture(bag, *start).mass)
    assert launched == [30, 20]


def test_an_error_is_that_of_one_bag(launched, start, monkeypatch):
    def fit(x, *start):
        if len(x) == 7:
            raise MemoryError
        return fit_mixture(x, *start)

    monkeypatch.setattr(together, "fit_mixture", fit)
    fits = together.BatchedFitter(*start)
    bags = [mixture_bag(n, 6, 3, separation=300.0, seed=n)[0] for n in (40, 7, 50)]
    first, second, third = (fits.add(bag) for bag in bags)
    with pytest.raises(MemoryError):
        second.wait()
    assert float(first.wait().mass.sum()) == pytest.approx(40)
    assert float(third.wait().mass.sum()) == pytest.approx(50)


def test_bags_that_cannot_be_launched_are_not_added(start):
    fits = together.BatchedFitter(*start)
    assert fits.add(torch.zeros(0, 6)) is None
    assert fits.add(torch.zeros(3, 6)) is None  # not on a GPU

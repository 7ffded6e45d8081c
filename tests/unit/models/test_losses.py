"""Losses against lifelines, scikit-survival and definitions written out slowly."""

import numpy as np
import pandas as pd
import pytest
import torch

from panther.errors import InputError
from panther.models.losses import (
    cox,
    digitise,
    discrete_nll,
    ranking,
    risk_from_hazards,
    time_bins,
)


def patients(n: int = 60, seed: int = 0, distinct: int = 15) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Log risks, times with many ties, events."""
    rng = np.random.default_rng(seed)
    return (
        torch.tensor(rng.normal(size=n)),
        torch.tensor(rng.integers(1, distinct, n).astype(float)),
        torch.tensor(rng.random(n) < 0.6),
    )


def slow_cox(eta, time, event, ties):
    total = 0.0
    for t in sorted(set(time[event].tolist())):
        dead = [i for i in range(len(eta)) if time[i] == t and event[i]]
        at_risk = sum(np.exp(eta[i]) for i in range(len(eta)) if time[i] >= t)
        tied = sum(np.exp(eta[i]) for i in dead)
        for rank, i in enumerate(dead):
            share = rank / len(dead) if ties == "efron" else 0
            total -= eta[i] - np.log(at_risk - share * tied)
    return total / event.sum()


@pytest.mark.parametrize("ties", ["efron", "breslow"])
@pytest.mark.parametrize("distinct", [3, 15, 10_000])
def test_cox_is_the_partial_likelihood_written_out(ties, distinct):
    eta, time, event = patients(distinct=distinct)
    assert float(cox(eta, time, event, ties)) == pytest.approx(
        slow_cox(eta.numpy(), time.numpy(), event.numpy(), ties), abs=1e-10
    )


@pytest.mark.parametrize("ties", ["efron", "breslow"])
def test_cox_gradients_are_right_and_shifts_do_not_matter(ties):
    eta, time, event = patients(25, distinct=6)
    assert torch.autograd.gradcheck(lambda e: cox(e, time, event, ties), eta.clone().requires_grad_())
    torch.testing.assert_close(cox(eta + 700, time, event, ties), cox(eta, time, event, ties))


@pytest.mark.parametrize("loss", [cox, ranking])
def test_a_batch_without_events_gives_zero_and_finite_gradients(loss):
    eta = torch.randn(8, 1, requires_grad=True)
    value = loss(eta, torch.arange(1.0, 9.0), torch.zeros(8, dtype=torch.bool))
    value.backward()
    assert value.item() == 0
    assert torch.equal(eta.grad, torch.zeros(8, 1))


def test_extreme_risks_stay_finite():
    eta = torch.tensor([1e4, -1e4, 0.0, 5.0], requires_grad=True)
    time, event = torch.tensor([1.0, 1.0, 1.0, 2.0]), torch.tensor([True, True, False, True])
    for loss in (cox, ranking):
        value = loss(eta, time, event)
        value.backward()
        assert torch.isfinite(value)
    logits = torch.tensor([[1e4, -1e4], [-1e4, 1e4]], requires_grad=True)
    discrete_nll(logits, torch.tensor([0, 1]), torch.tensor([True, False])).backward()
    assert torch.isfinite(eta.grad).all()
    assert torch.isfinite(logits.grad).all()


@pytest.mark.parametrize("alpha", [0.0, 0.5, 0.9])
def test_discrete_nll_is_the_formula_of_the_paper(alpha):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(40, 4, generator=generator, dtype=torch.float64)
    bins, event = torch.randint(4, (40,), generator=generator), torch.rand(40, generator=generator) < 0.5
    hazards = torch.sigmoid(logits)
    survival = torch.cumprod(1 - hazards, 1)
    total = 0.0
    for i, t in enumerate(bins.tolist()):
        before = survival[i, t - 1] if t else torch.tensor(1.0)
        if event[i]:
            total += -(torch.log(before) + torch.log(hazards[i, t]))  # (1 - alpha) + alpha
        else:
            total += -(1 - alpha) * torch.log(survival[i, t])
    torch.testing.assert_close(discrete_nll(logits, bins, event, alpha), total / 40)
    torch.testing.assert_close(risk_from_hazards(logits), -survival.sum(1))


def test_ranking_approaches_one_minus_the_c_index_and_is_half_for_equal_risks():
    from sksurv.metrics import concordance_index_censored

    eta, time, event = patients(80, seed=5)
    expected = 1 - concordance_index_censored(event.numpy(), time.numpy(), eta.numpy())[0]
    assert float(ranking(eta * 1e6, time, event)) == pytest.approx(expected, abs=1e-6)
    assert float(ranking(torch.zeros(80), time, event)) == pytest.approx(0.5)


def test_an_event_and_a_censoring_at_one_time_are_a_pair_by_default():
    time, event = torch.tensor([3.0, 3.0, 5.0]), torch.tensor([True, False, True])
    eta = torch.tensor([0.0, 7.0, -7.0])
    assert float(ranking(eta, time, event)) == pytest.approx(0.5, abs=1e-3)  # one of two pairs is right
    assert float(ranking(eta, time, event, tied_times=False)) == pytest.approx(0.0, abs=1e-3)


def test_bins_are_quantiles_of_uncensored_times_and_edges_belong_to_the_later_bin_or_as_pandas_cuts_them():
    time, event = np.array([1.0, 2, 3, 4, 5, 6, 7, 8, 500]), np.array([True] * 8 + [False])
    edges = time_bins(time, event)
    np.testing.assert_allclose(edges, np.quantile(np.arange(1, 9), [0.25, 0.5, 0.75]))
    np.testing.assert_array_equal(np.bincount(digitise(time[:8], edges)), [2, 2, 2, 2])
    np.testing.assert_array_equal(digitise(np.array([edges[0], 500.0]), edges), [1, 3])
    cut = pd.cut(time, [-1e-6, 2.0, 4.0, 1e6], labels=False, include_lowest=True)
    np.testing.assert_array_equal(digitise(time, np.array([2.0, 4.0]), "earlier"), cut)
    with pytest.raises(InputError, match="No training patient has an event"):
        time_bins(np.ones(3), np.zeros(3, bool))
    with pytest.raises(InputError, match="at least 2"):
        time_bins(np.ones(3), np.ones(3, bool), 1)

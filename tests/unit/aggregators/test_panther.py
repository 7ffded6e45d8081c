"""PANTHER: readouts, gradients, settings, trained prototypes."""

import pytest
import torch

from mixture_bags import mixture_bag
from panther.aggregators import build
from panther.aggregators.panther import PantherAggregator
from panther.errors import InputError
from panther.types import Prototypes


@pytest.fixture
def bag_and_prototypes():
    x, h = mixture_bag(200, 5, 4, separation=1.5)
    return x, Prototypes(h, within_variance=torch.ones(5))


def test_all_is_written_prototype_by_prototype_as_in_the_paper(bag_and_prototypes):
    x, prototypes = bag_and_prototypes
    embedding = build("panther", prototypes)(x, with_assignment=True)
    assert embedding.vector.shape == (4 * (1 + 2 * 5),)
    q = embedding.assignment
    for c in range(4):
        weight, mean, variance = embedding.vector[c * 11 : (c + 1) * 11].split([1, 5, 5])
        torch.testing.assert_close(weight[0], q[:, c].mean())  # at tau = 0 the column means are pi
        expected = (q[:, c, None] * x).sum(0) / q[:, c].sum()
        torch.testing.assert_close(mean, expected, rtol=1e-4, atol=1e-5)
        spread = (q[:, c, None] * (x - expected) ** 2).sum(0) / q[:, c].sum()
        torch.testing.assert_close(variance, spread, rtol=1e-4, atol=1e-5)


def test_weighted_average_top_and_bottom_are_read_from_the_same_mixture(bag_and_prototypes):
    x, prototypes = bag_and_prototypes
    tokens = build("panther", prototypes)(x).tokens
    weights = tokens[:, 0]
    average = build("panther", prototypes, {"readout": "wa"})(x).vector
    torch.testing.assert_close(average, (weights[:, None] * tokens[:, 1:]).sum(0))
    assert torch.equal(build("panther", prototypes, {"readout": "top"})(x).vector, tokens[weights.argmax()])
    assert torch.equal(build("panther", prototypes, {"readout": "bottom"})(x).vector, tokens[weights.argmin()])


def test_gradients_of_the_whole_fit_are_right(bag_and_prototypes):
    x, prototypes = bag_and_prototypes
    module = PantherAggregator(prototypes, trainable=True, steps=2, tau=0.1).double()

    def embed(features, centroids):
        return torch.func.functional_call(module, {"centroids": centroids}, (features,)).vector

    inputs = (x[:7].double().requires_grad_(), prototypes.centroids.double().requires_grad_())
    assert torch.autograd.gradcheck(embed, inputs, atol=1e-5)


def test_gradients_stay_finite_with_an_absent_prototype(bag_and_prototypes):
    x, prototypes = bag_and_prototypes
    far = Prototypes(torch.cat([prototypes.centroids, torch.full((1, 5), 1e4)]))
    module = PantherAggregator(far, trainable=True, steps=3)
    module(x).vector.square().mean().backward()
    assert torch.isfinite(module.centroids.grad).all()


def test_the_effective_number_runs_from_one_to_c(bag_and_prototypes):
    x, prototypes = bag_and_prototypes
    collapsed = build("panther", prototypes)(prototypes.centroids[:1] + 0.01 * x)
    assert float(collapsed.aux["effective_prototypes"]) == pytest.approx(1, abs=0.1)
    even = build("panther", Prototypes(torch.zeros(4, 5)))(x)  # equal prototypes
    assert float(even.aux["effective_prototypes"]) == pytest.approx(4)


@pytest.mark.parametrize(
    ("name", "value"), [("preset", "best"), ("readout", "mean"), ("steps", 0), ("tau", -1.0), ("bins", 3)]
)
def test_unknown_settings_and_values_are_refused(name, value, bag_and_prototypes):
    with pytest.raises(InputError, match=value if isinstance(value, str) else name):
        build("panther", bag_and_prototypes[1], {name: value})
    with pytest.raises(InputError, match="within-cluster variance"):
        build("panther", Prototypes(torch.zeros(2, 3)), {"preset": "calibrated"})


def test_a_few_steps_of_training_move_the_prototypes_and_lower_the_loss():
    generator = torch.Generator().manual_seed(0)
    bags = [torch.randn(40, 5, generator=generator) + label for label in (0.0, 0.6) for _ in range(6)]
    labels = torch.tensor([0] * 6 + [1] * 6)
    start = Prototypes(torch.randn(3, 5, generator=generator))
    module = build("panther", start, trainable=True, steps=2, tau=1.0)
    torch.manual_seed(0)
    model = torch.nn.Linear(module.out_dim, 2)
    optimiser = torch.optim.Adam([module.centroids], lr=0.1)  # prototypes only
    losses = []
    for _ in range(20):
        optimiser.zero_grad()
        logits = model(torch.stack([module(bag).vector for bag in bags]))
        loss = torch.nn.functional.cross_entropy(logits, labels)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.95 * losses[0]
    assert not torch.allclose(module.centroids, start.centroids)
    assert not any(p.requires_grad for p in build("panther", start).parameters())
    with pytest.raises(InputError, match=r"'h2t' cannot be trained.*panther"):
        build("h2t", start, trainable=True)


def test_settings_are_a_mapping_or_keywords(bag_and_prototypes):
    x, prototypes = bag_and_prototypes
    one = build("panther", prototypes, {"steps": 2, "tau": 1.0})(x)
    assert torch.equal(one.vector, build("panther", prototypes, {"steps": 3}, steps=2, tau=1.0)(x).vector)
    with pytest.raises(InputError, match="no setting 'step'; did you mean 'steps'"):
        build("panther", prototypes, step=2)
    with pytest.raises(InputError, match="no setting 'trainable'"):  # a study file does not train prototypes
        build("panther", prototypes, {"trainable": True})

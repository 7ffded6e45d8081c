"""The unsupervised baselines against plain loops and POT."""

import numpy as np
import ot as pot
import pytest
import torch

from mixture_bags import mixture_bag
from panther.aggregators import build
from panther.aggregators.ot import sinkhorn
from panther.errors import InputError
from panther.types import Prototypes


@pytest.fixture
def bag():
    return mixture_bag(257, 7, 5, separation=1.0, offset=3.0)[0]


@pytest.fixture
def prototypes():
    return Prototypes(mixture_bag(1, 7, 5, separation=1.0, offset=3.0)[1])


def test_deepsets_is_the_mean(bag, prototypes):
    np.testing.assert_allclose(build("deepsets", prototypes)(bag).vector, bag.double().mean(0), rtol=1e-6)


def test_protocounts_counts(bag, prototypes):
    counts = np.zeros(5)
    for row in bag.numpy():
        counts[((row - prototypes.centroids.numpy()) ** 2).sum(1).argmin()] += 1
    np.testing.assert_array_equal(build("protocounts", prototypes)(bag).vector, counts)
    np.testing.assert_allclose(
        build("protocounts", prototypes, {"scale": "fraction"})(bag).vector, counts / 257, rtol=1e-6
    )
    l2 = build("protocounts", prototypes, {"scale": "l2"})(bag).vector
    np.testing.assert_allclose(l2, counts / np.sqrt((counts**2).sum()), rtol=1e-6)


@pytest.mark.parametrize("normalise", [True, False])
def test_h2t_averages_within_each_prototype(bag, prototypes, normalise):
    x, h = bag.double().numpy(), prototypes.centroids.double().numpy()
    if normalise:
        x, h = (m / np.linalg.norm(m, axis=1, keepdims=True) for m in (x, h))
    owner = np.array([((row - h) ** 2).sum(1).argmin() for row in x])
    expected = np.stack([x[owner == c].mean(0) if (owner == c).any() else np.zeros(7) for c in range(5)])
    embedding = build("h2t", prototypes, {"normalise": normalise})(bag)
    np.testing.assert_allclose(embedding.tokens, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(embedding.aux["mass"], [(owner == c).sum() for c in range(5)])


def test_h2t_gives_zeros_and_a_flag_for_an_absent_prototype(bag, prototypes):
    far = Prototypes(torch.cat([prototypes.centroids, -1e3 * torch.ones(1, 7)]))
    embedding = build("h2t", far, {"normalise": False})(bag)
    assert not embedding.tokens[5].any()
    assert float(embedding.aux["mass"][5]) == 0


def pot_embedding(x, h, epsilon, **options):
    x, h = x.double().numpy(), h.double().numpy()
    cost = ((x[:, None] - h) ** 2).sum(-1)
    a, b = np.full(len(x), 1 / len(x)), np.full(len(h), 1 / len(h))
    plan = pot.sinkhorn(a, b, cost / cost.mean(), epsilon, method="sinkhorn_log", **options)
    return len(h) * plan.T @ x, plan


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 2.0])
@pytest.mark.parametrize("separation", [0.2, 1.5])
def test_ot_equals_pot(epsilon, separation):
    x, h = mixture_bag(600, 24, 6, separation=separation, offset=5.0)
    embedding = build("ot", Prototypes(h), {"epsilon": epsilon, "iterations": 5000, "tolerance": 1e-10})(
        x, with_assignment=True
    )
    expected, plan = pot_embedding(x, h, epsilon, numItermax=20000, stopThr=1e-11)
    error = np.linalg.norm(embedding.vector.double().numpy() - expected.ravel()) / np.linalg.norm(expected)
    assert error <= 1e-4
    np.testing.assert_allclose(embedding.assignment, plan, atol=1e-5)
    assert float(embedding.aux["marginal_violation"]) <= 1e-9


@pytest.mark.parametrize("relative", [True, False])
def test_ot_with_the_distance_as_its_cost_equals_pot(relative):
    x, h = mixture_bag(300, 6, 4, separation=1.0)[:2]
    cost = np.sqrt(pot.dist(x.double().numpy(), h.double().numpy()))
    scale = cost.mean() if relative else 1.0
    n, c = cost.shape
    plan = pot.sinkhorn(np.full(n, 1 / n), np.full(c, 1 / c), cost / scale, 0.5, "sinkhorn_log", 20_000, 1e-12)
    options = {"epsilon": 0.5, "iterations": 5000, "tolerance": 1e-10, "cost": "euclidean", "relative": relative}
    embedding = build("ot", Prototypes(h), options)(x, with_assignment=True)
    np.testing.assert_allclose(embedding.assignment * n, plan * n, atol=2e-5)
    np.testing.assert_allclose(embedding.tokens, c * plan.T @ x.double().numpy(), rtol=1e-4, atol=1e-4)


def test_ot_at_a_tiny_epsilon_is_finite_and_tells_how_far_the_marginals_are_off():
    x, h = mixture_bag(400, 24, 6, separation=3.0, offset=5.0)
    embedding = build("ot", Prototypes(h), {"epsilon": 1e-3})(x, with_assignment=True)
    assert torch.isfinite(embedding.vector).all()
    plan = embedding.assignment.double()
    torch.testing.assert_close(plan.sum(1), torch.full((400,), 1 / 400, dtype=torch.float64), rtol=1e-5, atol=0)
    off = 0.5 * (plan.sum(0) - 1 / 6).abs().sum()
    assert float(embedding.aux["marginal_violation"]) == pytest.approx(float(off), abs=1e-4)
    assert embedding.aux["iterations"] == 100


def test_ot_makes_every_prototype_equally_heavy_whatever_the_slide():
    _, h = mixture_bag(1, 4, 3, separation=2.0)
    x = h[0] + torch.randn(500, 4, generator=torch.Generator().manual_seed(0))  # one tissue only
    plan = build("ot", Prototypes(h), {"epsilon": 0.2, "iterations": 2000})(x, with_assignment=True).assignment
    torch.testing.assert_close(plan.sum(0), torch.full((3,), 1 / 3), rtol=1e-4, atol=1e-5)


def test_a_mixture_with_uniform_weights_comes_close_to_ot_on_a_balanced_slide_and_not_on_a_skewed_one():
    """The paper calls OT the special case of uniform weights: so it is when the slide is balanced."""
    _, h = mixture_bag(1, 8, 4, separation=1.0)
    generator = torch.Generator().manual_seed(3)
    distance = {}
    for name, counts in {"balanced": [250] * 4, "skewed": [910, 30, 30, 30]}.items():
        x = torch.cat([h[c] + torch.randn(n, 8, generator=generator) for c, n in enumerate(counts)])
        mixture = build("panther", Prototypes(h), {"weights": "uniform", "variance": 1.0})(x)
        cost = torch.cdist(x, h).square().mean()
        transport = build("ot", Prototypes(h), {"epsilon": float(2.0 / cost), "iterations": 2000})(
            x
        )  # exp(-d^2/2) in both
        means = mixture.tokens[:, 1:9]
        distance[name] = float((means - transport.tokens).norm() / (transport.tokens - transport.tokens.mean(0)).norm())
    assert distance["balanced"] < 0.05
    assert distance["skewed"] > 5 * distance["balanced"]


@pytest.mark.parametrize(
    ("name", "options"),
    [("ot", {"epsilon": 0}), ("ot", {"cost": "cosine"}), ("protocounts", {"scale": "log"}), ("deepsets", {"steps": 2})],
)
def test_settings_that_make_no_sense_are_refused(name, options, prototypes):
    with pytest.raises(InputError):
        build(name, prototypes, options)


def test_known_proportions_are_recovered():
    """Generated tissue mixes: counts and mixture weights find the true shares (largest error printed with -s)."""
    from panther.prototypes import KMeansSettings, fit_bags
    from panther.types import Bag

    rng = np.random.default_rng(0)
    centres = rng.normal(0, 2.0, (5, 20))
    truth = rng.dirichlet(np.ones(5), 12)
    labels = [rng.choice(5, 800, p=p) for p in truth]
    bags = [
        Bag(str(i), torch.tensor(centres[y] + rng.normal(size=(800, 20)), dtype=torch.float32))
        for i, y in enumerate(labels)
    ]
    drawn = np.stack([np.bincount(y, minlength=5) / 800 for y in labels])
    fitted = fit_bags(bags, KMeansSettings(5, sample=4000)).prototypes
    tissue = np.linalg.norm(fitted.centroids.numpy()[:, None] - centres, axis=-1).argmin(1)
    for method, options in (
        ("protocounts", {"scale": "fraction"}),
        ("panther", {}),
        ("panther", {"preset": "calibrated"}),
    ):
        module = build(method, fitted, options)
        found = np.stack([module(bag.features).aux["weights"].numpy() for bag in bags])
        worst = np.abs(found - drawn[:, tissue]).max()
        print(f"{method} {options}: largest error of a proportion {worst:.4f}")
        assert worst <= 0.01


@pytest.mark.parametrize("epsilon", [1.0, 0.1, 0.01, 1e-3])
@pytest.mark.parametrize(("patches", "count"), [(1, 1), (7, 3), (300, 16), (90, 21)])
def test_sinkhorns_iterations_in_c_are_those_of_torch(epsilon, patches, count, monkeypatch):
    cost = torch.rand(patches, count, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) / epsilon
    cost[:, 0] += 5 / epsilon  # a prototype that is far from every patch: scalings are absorbed
    real, found = torch.ones(patches, dtype=torch.bool), []
    for kernel in ("torch", "auto"):
        monkeypatch.setenv("PANTHER_KERNEL", kernel)
        found.append(sinkhorn(cost, real, 200, 1e-7))
    assert found[0].iterations == found[1].iterations
    assert float(found[1].violation) == pytest.approx(float(found[0].violation), rel=1e-6, abs=1e-12)
    torch.testing.assert_close(found[1].potentials, found[0].potentials, rtol=1e-9, atol=1e-9)
    broken = cost.clone()
    broken[0] = torch.nan
    assert sinkhorn(broken, real, 10, 1e-7).potentials.isnan().all()

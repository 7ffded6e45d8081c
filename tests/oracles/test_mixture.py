"""EM against independent oracles: scikit-learn, a float64 two-pass computation, and the objective written in the design."""

import math
import warnings

import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from mixture_bags import mixture_bag
from panther.mixture import FLOOR, PRESETS, EMSettings, fit_mixture, log_posterior, responsibilities
from panther.types import Mixture

pytestmark = pytest.mark.usefixtures("kernel")


def two_pass(x: torch.Tensor, prototypes: torch.Tensor, variance: torch.Tensor) -> tuple[Mixture, torch.Tensor]:
    """One EM step in float64, distances and variances by plain differences: no expansion, no shift, no blocks."""
    x, prototypes = x.double(), prototypes.double()
    distance = torch.stack([(((x - h) ** 2) / variance.double()).sum(1) for h in prototypes], 1)
    q = torch.softmax(-0.5 * distance, 1)
    mass = q.sum(0)
    means = (q.T @ x) / mass[:, None]
    variances = torch.stack([(q[:, c, None] * (x - means[c]) ** 2).sum(0) / mass[c] for c in range(len(means))])
    return Mixture(mass / len(x), means, variances), mass


def log_density(x: torch.Tensor, mixture: Mixture) -> torch.Tensor:
    """sum_n log p(z_n), written out."""
    weights, means, variances = mixture
    per_component = -0.5 * (
        ((x[:, None] - means) ** 2 / variances).sum(-1) + variances.log().sum(-1) + x.shape[1] * math.log(2 * math.pi)
    )
    return (per_component + weights.log()).logsumexp(1).sum()


@pytest.mark.parametrize("separation", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("steps", [1, 3])
def test_steps_at_tau_zero_equal_scikit_learn(separation, steps):
    x, h = mixture_bag(500, 10, 5, separation=separation)
    x, h = x.double(), h.double()
    ours = fit_mixture(x, h, torch.ones(10), EMSettings(steps=steps))
    reference = GaussianMixture(
        5,
        covariance_type="diag",
        max_iter=steps,
        reg_covar=0,
        tol=0,
        weights_init=[0.2] * 5,
        means_init=h,
        precisions_init=torch.ones(5, 10),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        reference.fit(x.numpy())
    solid = ours.mass >= 1  # scikit-learn adds 10 eps to masses
    assert solid.any()
    for name, value in (
        ("weights_", ours.mixture.weights),
        ("means_", ours.mixture.means),
        ("covariances_", ours.mixture.variances),
    ):
        expected = torch.from_numpy(getattr(reference, name))
        torch.testing.assert_close(value[solid], expected[solid], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("ratio", [0, 10, 100])
@pytest.mark.parametrize("separation", [0.05, 1.0, 30.0])
@pytest.mark.parametrize("scale", [0.01, 1.0, 50.0])
def test_float32_features_with_a_large_mean_lose_no_digits(ratio, separation, scale):
    x, h = mixture_bag(4000, 48, 6, separation=separation, offset=ratio)
    x, h = x * scale, h * scale
    variance = torch.full((48,), scale**2)
    fitted = fit_mixture(x, h, variance, EMSettings(variance=scale**2))
    expected, mass = two_pass(x, h, variance)
    solid = mass >= 2
    sigma = expected.variances.sqrt()
    assert (((fitted.mixture.means - expected.means).abs() / sigma)[solid]).max() <= 1e-5
    assert (((fitted.mixture.variances - expected.variances).abs() / expected.variances)[solid]).max() <= 1e-5
    assert (fitted.mixture.weights - expected.weights).abs().max() <= 1e-5
    assert (fitted.mixture.variances >= 0).all()


def test_prototypes_far_from_the_slide_lose_no_digits_either():
    x, h = mixture_bag(3000, 32, 4, separation=1.0)
    x = x + 200  # the slide lies 200 standard deviations from its prototypes: a site shift
    fitted = fit_mixture(x, h, torch.ones(32))
    expected, mass = two_pass(x, h, torch.ones(32))
    solid = mass >= 2
    assert solid.any()
    assert (((fitted.mixture.variances - expected.variances).abs() / expected.variances)[solid]).max() <= 1e-5


@pytest.mark.parametrize(
    "settings",
    [EMSettings(), EMSettings(tau=0.001, variance=0.1), EMSettings(tau=1.0, variance=2.0), EMSettings(tau=30.0)],
)
@pytest.mark.parametrize("separation", [0.3, 2.0])
def test_no_step_decreases_the_penalised_likelihood(settings, separation):
    x, h = mixture_bag(300, 6, 4, separation=separation, seed=3)
    x, h = x.double(), h.double() + 0.5
    variance = torch.full((6,), float(settings.variance), dtype=torch.float64)
    objective = []
    for steps in range(1, 12):
        fitted = fit_mixture(x, h, variance, EMSettings(steps, settings.tau, settings.variance))
        assert (fitted.mixture.variances > FLOOR * variance.mean()).all()  # the floor is inactive, as the claim demands
        likelihood = log_density(x, fitted.mixture)
        objective.append(float(log_posterior(likelihood, fitted.mixture, h, variance, settings.tau)))
    gains = torch.tensor(objective).diff()
    assert (gains >= -1e-9 * abs(objective[-1])).all()
    assert gains[0] > 0


def test_the_log_likelihood_of_each_step_is_that_of_the_parameters_that_entered_it():
    x, h = mixture_bag(200, 5, 3, separation=1.0)
    x, h = x.double(), h.double()
    start = Mixture(torch.full((3,), 1 / 3, dtype=torch.float64), h, torch.full((3, 5), 0.5, dtype=torch.float64))
    fitted = fit_mixture(x, h, torch.full((5,), 0.5), EMSettings(steps=2, variance=0.5))
    after_one = fit_mixture(x, h, torch.full((5,), 0.5), EMSettings(steps=1, variance=0.5))
    expected = torch.stack([log_density(x, start), log_density(x, after_one.mixture)])
    torch.testing.assert_close(fitted.log_likelihood, expected, rtol=1e-12, atol=1e-9)


def test_the_prior_pulls_an_absent_component_to_its_prototype():
    x, h = mixture_bag(100, 4, 2, separation=1.0)
    h = torch.cat([h, torch.full((1, 4), 1e3)])  # nobody is near
    fitted = fit_mixture(x, h, torch.full((4,), 0.3), EMSettings(tau=2.0, variance=0.3))
    torch.testing.assert_close(fitted.mixture.means[2], h[2])
    torch.testing.assert_close(fitted.mixture.variances[2], torch.full((4,), 0.3))
    assert float(fitted.mixture.weights[2]) == pytest.approx(2 / (100 + 3 * 2))


def test_an_absent_component_at_tau_zero_keeps_prototype_and_starting_variance_with_weight_zero():
    x, h = mixture_bag(100, 4, 2, separation=1.0)
    h = torch.cat([h, torch.full((1, 4), 1e3)])
    for steps in (1, 5):
        fitted = fit_mixture(x, h, torch.full((4,), 0.7), EMSettings(steps=steps, variance=0.7))
        assert float(fitted.mixture.weights[2]) == 0
        torch.testing.assert_close(fitted.mixture.means[2], h[2])
        torch.testing.assert_close(fitted.mixture.variances[2], torch.full((4,), 0.7))
        assert all(torch.isfinite(p).all() for p in fitted.mixture)


def test_a_component_that_owns_one_patch_does_not_break_the_next_steps():
    x, h = mixture_bag(60, 8, 3, separation=1.0)
    lonely = torch.full((1, 8), 40.0)
    fitted = fit_mixture(torch.cat([x, lonely]), torch.cat([h, lonely + 0.1]), torch.ones(8), EMSettings(steps=10))
    assert all(torch.isfinite(p).all() for p in fitted.mixture)
    assert float(fitted.mass[3]) == pytest.approx(1.0)


def test_calibrated_does_not_depend_on_the_scale_of_the_features():
    from panther.aggregators import build
    from panther.prototypes import KMeansSettings, fit_bags
    from panther.types import Bag

    bags = [mixture_bag(200, 16, 5, separation=0.6, seed=9)[0] + 0.3 * i for i in range(4)]
    results = {}
    for scale in (1.0, 1000.0, 0.001):
        scaled = [Bag(str(i), bag.double() * scale) for i, bag in enumerate(bags)]
        prototypes = fit_bags(scaled, KMeansSettings(5, sample=1000)).prototypes
        module = build("panther", prototypes, {"preset": "calibrated"})
        results[scale] = module(scaled[0].features, with_assignment=True)
    for scale in (1000.0, 0.001):
        torch.testing.assert_close(results[scale].aux["weights"], results[1.0].aux["weights"], rtol=0, atol=1e-4)
        torch.testing.assert_close(results[scale].assignment, results[1.0].assignment, rtol=0, atol=2e-3)


def test_the_paper_preset_does_depend_on_the_scale():
    x, h = mixture_bag(300, 8, 4, separation=1.0)
    one = fit_mixture(x, h, torch.ones(8), keep_assignment=True).assignment
    other = fit_mixture(x * 0.01, h * 0.01, torch.ones(8), keep_assignment=True).assignment
    assert (one - other).abs().max() > 0.5  # what is sharp at one scale is uniform at the other


def test_presets_are_those_of_the_design():
    assert PRESETS["paper"] == EMSettings(steps=1, tau=0.0, variance=1.0, temperature=1.0)
    assert (PRESETS["published-code"].tau, PRESETS["published-code"].variance) == (0.001, 0.1)
    assert (PRESETS["calibrated"].tau, PRESETS["calibrated"].variance) == (1.0, "pooled")


def test_temperature_softens_posteriors_and_leaves_their_order():
    x, h = mixture_bag(200, 64, 6, separation=1.0)
    sharp = fit_mixture(x, h, torch.ones(64), keep_assignment=True).assignment
    soft = fit_mixture(x, h, torch.ones(64), EMSettings(temperature=50.0), keep_assignment=True).assignment
    assert torch.equal(sharp.argmax(1), soft.argmax(1))
    assert soft.amax(1).mean() < 0.9 < sharp.amax(1).mean()
    torch.testing.assert_close(soft.sum(1), torch.ones(200))


def test_the_posterior_under_the_final_parameters_is_bayes_rule():
    x, h = mixture_bag(150, 6, 4, separation=0.8)
    mixture = fit_mixture(x, h, torch.ones(6), EMSettings(steps=3)).mixture
    joint = torch.stack(
        [
            torch.distributions.Normal(m.double(), v.double().sqrt()).log_prob(x.double()).sum(1) + w.double().log()
            for w, m, v in zip(*mixture, strict=True)
        ],
        1,
    )
    torch.testing.assert_close(responsibilities(x, mixture).double(), joint.softmax(1), rtol=1e-3, atol=1e-4)

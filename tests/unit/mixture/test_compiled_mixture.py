"""EM steps in C against the reference in torch."""

import pytest
import torch

from panther.mixture import EMSettings, fit_mixture
from panther.mixture.steps import is_ill_conditioned, maximise, posterior
from panther.statistics import Statistics
from panther.statistics.compiled import library_for, load_library
from panther.types import Mixture

missing = load_library()
pytestmark = pytest.mark.skipif(isinstance(missing, str), reason=f"there is no compiled kernel: {missing}")


@pytest.fixture
def both(monkeypatch):
    """Results of a function with the C kernel and with torch."""

    def call(function, *args, **options):
        results = []
        for kernel in ("compiled", "torch"):
            monkeypatch.setenv("PANTHER_KERNEL", kernel)
            results.append(function(*args, **options))
        return results

    return call


def mixture_of(count, dim, *, shared=False, seed=0):
    torch.manual_seed(seed)
    weights = torch.rand(count, dtype=torch.float64)
    means = torch.randn(count, dim, dtype=torch.float64)
    variances = torch.rand(1 if shared else count, dim, dtype=torch.float64) * 10.0 ** torch.randint(-8, 8, (1, dim))
    return Mixture(weights / weights.sum(), means, variances)


def assert_same(found, reference, accuracy=1e-12):
    for a, b in zip(found, reference, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            assert a.dtype == b.dtype
            torch.testing.assert_close(a, b, rtol=accuracy, atol=accuracy, equal_nan=True)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("shape", [(1, 1), (3, 17), (16, 1024)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_logits_are_those_of_torch(both, shape, shared, dtype):
    mixture = mixture_of(*shape, shared=shared)
    if shape[0] > 1:
        mixture.weights[1] = 0.0
    found, reference = both(posterior, mixture, 2.0, dtype, whole_score=True)
    parts = [(a.linear, a.bias, a.quadratic, a.common) for a in (found, reference)]
    assert_same(*parts, accuracy=1e-6 if dtype == torch.float32 else 1e-12)
    assert (found.temperature, found.hard) == (reference.temperature, reference.hard)


@pytest.mark.parametrize("worst", [0.0, torch.nan, torch.inf])
@pytest.mark.parametrize("where", ["weights", "means", "variances"])
def test_nan_and_infinity_enter_the_logits_as_in_torch(both, where, worst):
    mixture = mixture_of(4, 20)
    getattr(mixture, where).view(-1)[3] = worst
    found, reference = both(posterior, mixture, dtype=torch.float64)
    assert_same((found.linear, found.bias, found.quadratic), (reference.linear, reference.bias, reference.quadratic))


@pytest.mark.parametrize("tau", [0.0, 0.001, 5.0])
@pytest.mark.parametrize("mass", [3.0, 0.0, torch.nan])
def test_parameters_are_those_of_torch(both, mass, tau):
    torch.manual_seed(0)
    masses = torch.rand(5, dtype=torch.float64) * 100
    masses[2] = mass
    total, square, centres = torch.randn(3, 5, 33, dtype=torch.float64)
    total[2], square[2] = (0, 0) if mass == 0 else (total[2], square[2])
    sums = Statistics(masses, total, square, masses[0], masses[0])
    found, reference = both(maximise, sums, centres, torch.rand(1, 33, dtype=torch.float64), tau)
    assert_same(found, reference)
    assert (found.variances[masses == masses] >= 0).all()


@pytest.mark.parametrize("distance", [1.0, 100.0])
def test_the_same_slides_are_repeated_in_float64(both, distance):
    mixture = mixture_of(4, 20)
    mixture = Mixture(mixture.weights, mixture.means * distance, torch.ones_like(mixture.means))
    for mass in ([50.0] * 4, [1.0] * 4, [torch.nan, 1.0, 1.0, torch.inf]):
        found, reference = both(is_ill_conditioned, torch.tensor(mass, dtype=torch.float64), mixture)
        assert bool(found) == bool(reference) == (distance > 1 and mass[0] == 50.0)


@pytest.mark.parametrize("covariance", ["diagonal", "tied", "spherical"])
def test_ten_steps_agree_with_torch(both, covariance):
    torch.manual_seed(0)
    prototypes = torch.randn(5, 40)
    x = prototypes[torch.randint(5, (700,))] + torch.randn(700, 40)
    how = EMSettings(steps=10, tau=0.5, covariance=covariance)
    found, reference = both(fit_mixture, x, prototypes, torch.ones(40), how)
    assert_same((*found.mixture, found.mass), (*reference.mixture, reference.mass), accuracy=1e-4)
    torch.testing.assert_close(found.log_likelihood, reference.log_likelihood, rtol=1e-6, atol=1e-3)


def test_torch_computes_where_gradients_are_required():
    mixture = mixture_of(3, 4)
    assert library_for(*mixture) is not None
    assert library_for(*mixture, torch.zeros(2, requires_grad=True, dtype=torch.float64)) is None
    assert library_for(*mixture, torch.zeros(2)) is None
    assert library_for(*mixture, torch.zeros(2, 3, 4, dtype=torch.float64)) is None

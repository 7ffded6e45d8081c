"""How a mixture is fitted, and the presets."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from panther.errors import InputError, check_choice, check_number, check_whole, make_plain

FLOOR = 1e-6  # of the mean starting variance: the variance of a component with a single patch is 0
STARTING_VARIANCES = (0.1, 1.0, "pooled")  # of the presets; prototypes have quantiles of surprise for these


def _tied(variances: Tensor, mass: Tensor) -> Tensor:
    """Average over the components, weighted by their mass."""
    mass = mass.unsqueeze(-1)
    return ((variances * mass).sum(-2, keepdim=True) / mass.sum(-2, keepdim=True)).expand_as(variances)


def _spherical(variances: Tensor, mass: Tensor) -> Tensor:
    """Average over the dimensions."""
    return variances.mean(-1, keepdim=True).expand_as(variances)


# Maximum-likelihood (or posterior) variances under a constraint are averages of the unconstrained ones.
COVARIANCE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "diagonal": lambda variances, mass: variances,
    "tied": _tied,
    "spherical": _spherical,
}
WEIGHTS: dict[str, Callable[[Tensor], Tensor]] = {
    "free": lambda weights: weights,
    "uniform": lambda weights: torch.full_like(weights, 1 / weights.shape[-1]),
}


@dataclass(frozen=True)
class EMSettings:
    """How the mixture is fitted."""

    steps: int = 1
    tau: float = 0.0  # pseudo-count of the prior; 0 is maximum likelihood
    variance: float | Literal["pooled"] = 1.0  # Sigma0; "pooled" takes the prototypes' within-cluster variance
    temperature: float = 1.0  # > 1 softens the posteriors, which saturate in many dimensions
    covariance: str = "diagonal"  # or "tied": shared by the components, "spherical": one number per component
    weights: str = "free"  # or "uniform": 1/C for all, the special case close to optimal transport

    def __post_init__(self) -> None:
        make_plain(self)
        for name, known in (("covariance", COVARIANCE), ("weights", WEIGHTS)):
            check_choice(name, getattr(self, name), known)
        check_whole("steps", self.steps, 1, 10_000)
        check_number("tau", self.tau, 0)
        check_number("temperature", self.temperature, 0, above=True)
        if self.variance != "pooled":
            check_number("variance ('pooled', or a number)", self.variance, 0, above=True)


PRESETS = {
    "paper": EMSettings(),
    "published-code": EMSettings(tau=0.001, variance=0.1),
    "calibrated": EMSettings(tau=1.0, variance="pooled"),
}


def starting_variance(variance: float | str, dim: int, within: Tensor | None) -> Tensor:
    """Starting variance (d,) of EM: a number, or "pooled", the prototypes' within-cluster variance."""
    if variance != "pooled":
        return torch.full((dim,), float(variance), dtype=torch.float64)
    if within is None:
        raise InputError(
            "preset: `calibrated` requires prototypes with within-cluster variance, as `panther prototypes` writes them"
        )
    pooled = within.double()
    # a floor for constant features, whose variance of 0 would decide all posteriors
    return pooled.clamp_min(1e-6 * float(pooled.mean()) or 1e-12)

"""The two sides of `embed.py` and their referee: the published passes written plainly, ours, and float64 in two passes."""

import math

import torch
from torch import Tensor

from panther.mixture import EMSettings, fit_mixture
from panther.types import Mixture

DIM, COMPONENTS = 1024, 16
# half the squared distance between prototypes = how far below the best the log posterior of the others lies, at Sigma = I
KINDS = {"one-hot": 1024.0, "soft": 2.5, "subnormal": 95.0}


@torch.no_grad()
def plain(x: Tensor, prototypes: Tensor, steps: int) -> Mixture:
    """Run the published passes, written plainly: whole-bag products, E[z^2] - mu^2, one more E-step for the posterior."""
    x = x.float()
    pi, mu, var = torch.full_like(prototypes[:, 0], 1 / len(prototypes)), prototypes, torch.ones_like(prototypes)

    def posterior() -> Tensor:
        distance = x**2 @ (1 / var).T - 2 * x @ (mu / var).T + (mu**2 / var).sum(1)
        joint = pi.log() - 0.5 * (distance + var.log().sum(1) + x.shape[1] * math.log(2 * math.pi))
        return (joint - joint.logsumexp(1, keepdim=True)).exp()  # (N, C)

    for _ in range(steps):
        q = posterior()
        mass = q.sum(0)[:, None]
        pi, mu = mass[:, 0] / len(x), q.T @ x / mass
        var = q.T @ x**2 / mass - mu**2
    posterior()
    return Mixture(pi, mu, var)


@torch.no_grad()
def ours(x: Tensor, prototypes: Tensor, steps: int, mask: Tensor | None = None) -> Mixture:
    return fit_mixture(x, prototypes, torch.ones_like(prototypes[0]), EMSettings(steps=steps), mask=mask).mixture


def exact(x: Tensor, prototypes: Tensor, steps: int) -> tuple[Tensor, Mixture]:
    """Mass and mixture in float64; the variance is taken about the mean, in a second pass."""
    origin = prototypes.double().mean(0)
    x, mu = x.double() - origin, prototypes.double() - origin
    pi, var = torch.full_like(mu[:, 0], 1 / len(mu)), torch.ones_like(mu)
    for _ in range(steps):
        joint = pi.log() + x @ (mu / var).T - 0.5 * (x * x @ (1 / var).T + (mu**2 / var + var.log()).sum(1))
        q = joint.softmax(1)
        mass = q.sum(0)
        pi, mu = mass / len(x), q.T @ x / mass[:, None]
        var = torch.stack([q[:, c] @ (x - mu[c]).square_() / mass[c] for c in range(len(mu))])
    return mass, Mixture(pi, mu + origin, var)


def error(found: Mixture, truth: tuple[Tensor, Mixture]) -> str:
    mass, true = truth
    owns = mass >= 1
    mu = ((found.means.double() - true.means).abs() / true.variances.sqrt())[owns].max()
    var = ((found.variances.double() - true.variances).abs() / true.variances)[owns].max()
    return f"{float(mu):.0e}, {float(var):.0e}"


def slide(kind: str, patches: int, seed: int = 0, offset: float = 0.0) -> tuple[Tensor, Tensor]:
    """Patches (N, d) around prototypes (C, d) with unit variance; the prototypes are the same for every seed."""
    prototypes = torch.randn(COMPONENTS, DIM, generator=torch.Generator().manual_seed(0)) * math.sqrt(KINDS[kind] / DIM)
    prototypes += offset
    generator = torch.Generator().manual_seed(seed + 1)
    owner = torch.randint(COMPONENTS, (patches,), generator=generator)
    return prototypes[owner].add_(torch.randn(patches, DIM, generator=generator)), prototypes


def character(x: Tensor, prototypes: Tensor) -> str:
    """What the posteriors of the first step look like: share of patches below 0.99, share of subnormal numbers."""
    joint = x.float() @ prototypes.T - 0.5 * prototypes.square().sum(1)
    q = joint.softmax(1)
    subnormal = (q > 0) & (q < torch.finfo(torch.float32).tiny)
    return f"{float((q.amax(1) < 0.99).float().mean()):.0%} / {float(subnormal.float().mean()):.0%}"

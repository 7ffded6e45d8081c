"""The two sides of `embed.py` and their referee: the published passes and no more, ours, and float64 in two passes."""

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from panther.mixture import EMSettings, fit_mixture
from panther.storage.bags import BagRef
from panther.types import Mixture

DIM, COMPONENTS = 1024, 16
# half the squared distance between prototypes = how far below the best the log posterior of the others lies, at Sigma = I
KINDS = {"one-hot": 1024.0, "soft": 2.5, "subnormal": 95.0}


@torch.no_grad()
def plain(x: Tensor, prototypes: Tensor, steps: int, mask: Tensor | None = None) -> Mixture:
    """Run the published passes over whole bags (B, N, d) in float32 and nothing else; a single bag (N, d) is a batch of one.

    Each step squares the bag once and makes two batched products (N x d by d x C) for the log joint; logsumexp, exp, times the mask; then two
    products (C x N by N x d), the second with the bag squared anew, for the sums. Factors go to the small side, so the bag is never copied,
    and nothing is computed after the last step.
    """
    bags = (x if x.dim() == 3 else x.unsqueeze(0)).float()
    real = torch.ones(bags.shape[:2], device=x.device) if mask is None else mask.float()
    real = real.unsqueeze(-1)  # (B, N, 1)
    mu = prototypes.expand(len(bags), -1, -1)  # (B, C, d)
    var, pi = torch.ones_like(mu), torch.full_like(mu[..., :1], 1 / len(prototypes))
    for _ in range(steps):
        bias = pi.log() - 0.5 * (mu**2 / var + var.log() + math.log(2 * math.pi)).sum(-1, keepdim=True)  # (B, C, 1)
        joint = torch.bmm(bags**2, (-0.5 / var).mT) + torch.bmm(bags, (mu / var).mT) + bias.mT  # (B, N, C)
        q = (joint - joint.logsumexp(-1, keepdim=True)).exp() * real
        mass = q.sum(1).unsqueeze(-1)  # (B, C, 1)
        pi, mu = mass / mass.sum(1, keepdim=True), torch.bmm(q.mT, bags) / mass
        var = torch.bmm(q.mT, bags**2) / mass - mu**2
    found = Mixture(pi.squeeze(-1), mu, var)
    return found if x.dim() == 3 else Mixture(*(t[0] for t in found))


def plain_slide(ref: BagRef, prototypes: Tensor) -> Mixture:
    """Read the whole array, hand it to torch where the prototypes are, run the passes once."""
    return Mixture(*(t.cpu() for t in plain(_load(ref.files[0]).to(prototypes.device), prototypes, 1)))


def plain_slide_on(ref: BagRef, prototypes: Tensor, device: str) -> list[np.ndarray]:
    """The same in a worker process; arrays come back from there faster than tensors."""
    return [t.numpy() for t in plain_slide(ref, prototypes.to(device))]


def _load(path: Path) -> Tensor:
    if path.suffix == ".npy":
        return torch.from_numpy(np.load(path))
    import h5py

    with h5py.File(path, "r") as file:
        return torch.from_numpy(file["features"][:])


@torch.no_grad()
def ours(
    x: Tensor, prototypes: Tensor, steps: int, mask: Tensor | None = None, variance: Tensor | None = None
) -> Mixture:
    variance = torch.ones_like(prototypes[0]) if variance is None else variance  # which the product holds
    return fit_mixture(x, prototypes, variance, EMSettings(steps=steps), mask=mask).mixture


@contextmanager
def kernel_of(name: str) -> Iterator[None]:
    """Compute with the kernel of this name, `torch` or `compiled`."""
    before = os.environ.get("PANTHER_KERNEL", "auto")
    os.environ["PANTHER_KERNEL"] = name
    try:
        yield
    finally:
        os.environ["PANTHER_KERNEL"] = before


def ours_in_torch(x: Tensor, prototypes: Tensor, steps: int, mask: Tensor | None = None) -> Mixture:
    with kernel_of("torch"):
        return ours(x, prototypes, steps, mask)


def ours_compiled(x: Tensor, prototypes: Tensor, steps: int, mask: Tensor | None = None) -> Mixture:
    with kernel_of("compiled"):
        return ours(x, prototypes, steps, mask)


def exact(x: Tensor, prototypes: Tensor, steps: int) -> list[tuple[Tensor, Mixture]]:
    """Mass and mixture after each step, in float64; the variance is taken about the mean, in a second pass."""
    origin = prototypes.double().mean(0)
    x, mu = x.double() - origin, prototypes.double() - origin
    pi, var = torch.full_like(mu[:, 0], 1 / len(mu)), torch.ones_like(mu)
    found = []
    for _ in range(steps):
        joint = pi.log() + x @ (mu / var).T - 0.5 * (x * x @ (1 / var).T + (mu**2 / var + var.log()).sum(1))
        q = joint.softmax(1)
        mass = q.sum(0)
        pi, mu = mass / len(x), q.T @ x / mass[:, None]
        var = torch.stack([q[:, c] @ (x - mu[c]).square_() / mass[c] for c in range(len(mu))])
        found.append((mass, Mixture(pi, mu + origin, var)))
    return found


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

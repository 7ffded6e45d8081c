"""Fitting on a GPU: launching the small operations of a step one by one takes longer than they do, so they are recorded once and replayed."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from panther.mixture.settings import EMSettings
from panther.mixture.steps import (
    constrained,
    finished,
    floored,
    is_ill_conditioned,
    log_likelihood,
    maximise,
    posterior,
    starting_point,
    uniform,
)
from panther.mixture.values import MixtureFit
from panther.statistics import Logits, Statistics, accumulate, compute_dtype
from panther.statistics.kernels import parts_of
from panther.statistics.replay import replay
from panther.statistics.upload import send_for
from panther.types import Mixture, Ragged, Rows


def can_replay(x: Rows | Ragged, prototypes: Tensor, variance: Tensor, mask: Tensor | None) -> bool:
    """Whether a fit runs on a GPU, in float32, without a mask and without gradients."""
    rows = x.rows if isinstance(x, Ragged) else x
    learns = torch.is_grad_enabled() and any(
        isinstance(t, Tensor) and t.requires_grad for t in (rows, prototypes, variance)
    )
    return prototypes.is_cuda and mask is None and x.dtype != torch.float64 and not learns


def launch_replayed(
    x: Rows | Ragged,
    prototypes: Tensor,
    variance: Tensor,
    settings: EMSettings,
    *,
    keep_assignment: bool,
    keep_scores: bool,
    to_host: bool = False,
) -> Callable[[], MixtureFit | None]:
    """The same mathematics as :func:`panther.mixture.fit_mixture`, launched; what is returned waits for it.

    It returns None where a step wants to be repeated in float64. With ``to_host`` other fits may be launched before it is called.
    """
    dtype = compute_dtype(torch.promote_types(x.dtype, prototypes.dtype))

    def begin(prototypes: Tensor, variance: Tensor) -> tuple[Tensor, ...]:
        origin, centres, start = starting_point(prototypes, variance, dtype)
        assign = posterior(uniform(centres, start), settings.temperature, dtype, whole_score=True)
        doubtful = torch.zeros((), dtype=torch.bool, device=centres.device)
        return *(origin, centres, start.clone(), doubtful), origin.to(dtype), *_tensors(assign)

    def advance(
        mass: Tensor, total: Tensor, square: Tensor, score: Tensor,
        origin: Tensor, centres: Tensor, start: Tensor, doubtful: Tensor,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        found = Statistics(mass, total, square, score, mass)
        mixture = constrained(maximise(found, centres, start, settings.tau), mass + settings.tau, settings)
        ill = torch.as_tensor(is_ill_conditioned(mass, mixture), device=doubtful.device)
        doubtful.copy_(ill if first else doubtful | ill)
        evidence = log_likelihood(found, uniform(centres, start), assign) if first else score.clone()
        if last:
            return evidence, torch.cat([t.flatten() for t in finished(mixture, origin, dtype)])
        return evidence, *_tensors(posterior(floored(mixture, start), settings.temperature, dtype))

    found = replay(begin, (prototypes, variance.to(prototypes.device)), ("begin", settings, dtype))
    fixed, rounded, entering = found[:4], found[4], list(found[5:])
    evidence, scores = [], None
    for step in range(settings.steps):
        first, last = step == 0, step == settings.steps - 1
        linear, bias, squares, *parts = entering
        common = squares if first and keep_scores else None
        assign = Logits(
            linear, bias, None if first else squares, settings.temperature, common=common, parts=tuple(parts)
        )
        keep: dict[str, Any] = {"keep_assignment": keep_assignment and last, "keep_scores": keep_scores and first}
        sums, assignment, each = accumulate(x, assign, rounded, **keep)
        scores = each if first else scores
        key = "advance", first, last, keep_scores, settings, dtype
        values, *entering = replay(advance, sums[:4], key, fixed)
        evidence.append(values if last else values.clone())  # the next replay overwrites it
    made = entering[0], sums.mass, torch.stack(evidence, -1), fixed[-1]
    coming = send_for(made) if to_host else None  # the next replay overwrites what is not copied

    def wait() -> MixtureFit | None:
        packed, mass, likelihood, doubtful = coming() if coming else (made[0].clone(), *made[1:])
        return None if bool(doubtful) else MixtureFit(_unpacked(packed, sums), mass, likelihood, assignment, scores)

    return wait


def _tensors(assign: Logits) -> tuple[Tensor, ...]:
    """Linear factors, bias, those of the squares or what they all have in common, and what the kernel wants of them."""
    squares = assign.common if assign.quadratic is None else assign.quadratic
    assert squares is not None
    return assign.linear, assign.bias, squares, *parts_of(assign)


def _unpacked(flat: Tensor, sums: Statistics) -> Mixture:
    """Weights, means and variances of what they are together."""
    shapes = sums.mass.shape, sums.total.shape, sums.total.shape
    parts = flat.split([shape.numel() for shape in shapes])
    return Mixture(*(part.view(shape) for part, shape in zip(parts, shapes, strict=True)))

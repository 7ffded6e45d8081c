"""Fitting on a GPU: the small operations of a step are recorded once as a CUDA graph, because launching them takes longer than they do."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
from torch import Tensor

from panther.mixture.settings import EMSettings
from panther.mixture.steps import (
    MixtureFit,
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
from panther.statistics import Logits, Statistics, accumulate, compute_dtype
from panther.statistics.gpu import on_device_of
from panther.statistics.kernels import parts_of
from panther.statistics.upload import send_for
from panther.types import Mixture, Ragged, Rows

KEPT = 32  # graphs
_graphs: "OrderedDict[Hashable, _Graph]" = OrderedDict()  # of the main thread


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
    """Launch the fit of :func:`panther.mixture.fit_mixture` and return a function that waits for it.

    The function returns None if a step must be repeated in float64. With ``to_host`` other fits may be launched before it is called.
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
        sums = Statistics(mass, total, square, score, mass)
        mixture = constrained(maximise(sums, centres, start, settings.tau), mass + settings.tau, settings)
        ill = torch.as_tensor(is_ill_conditioned(mass, mixture), device=doubtful.device)
        doubtful.copy_(ill if first else doubtful | ill)
        evidence = log_likelihood(sums, uniform(centres, start), assign) if first else score.clone()
        if last:
            return evidence, torch.cat([t.flatten() for t in finished(mixture, origin, dtype)])
        return evidence, *_tensors(posterior(floored(mixture, start), settings.temperature, dtype))

    started = replay(begin, (prototypes, variance.to(prototypes.device)), ("begin", settings, dtype))
    fixed, rounded, entering = started[:4], started[4], list(started[5:])
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
    """Linear factors, bias, quadratic or common factors, and their parts for the kernel."""
    squares = assign.common if assign.quadratic is None else assign.quadratic
    assert squares is not None
    return assign.linear, assign.bias, squares, *parts_of(assign)


def _unpacked(flat: Tensor, sums: Statistics) -> Mixture:
    """Weights, means and variances from one flat tensor."""
    shapes = sums.mass.shape, sums.total.shape, sums.total.shape
    parts = flat.split([shape.numel() for shape in shapes])
    return Mixture(*(part.view(shape) for part, shape in zip(parts, shapes, strict=True)))


class _Graph:
    """A function's launches on tensors of given shapes, recorded once."""

    def __init__(
        self, function: Callable[..., Sequence[Tensor]], inputs: Sequence[Tensor], fixed: Sequence[Tensor]
    ) -> None:
        self._inputs = [t.clone(memory_format=torch.contiguous_format) for t in inputs]
        self._fixed = fixed  # kept: the recording has their addresses
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):  # once outside of the recording: libraries set themselves up on their first call
            function(*self._inputs, *(t.clone() for t in fixed))
        torch.cuda.current_stream().wait_stream(aside)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):  # other threads may copy meanwhile
            self._outputs = tuple(function(*self._inputs, *fixed))

    def __call__(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        torch._foreach_copy_(self._inputs, list(inputs))  # one call instead of one for each
        self._graph.replay()
        return self._outputs


def replay(
    function: Callable[..., Sequence[Tensor]],
    inputs: Sequence[Tensor],
    key: Hashable,
    fixed: Sequence[Tensor] = (),
) -> tuple[Tensor, ...]:
    """Return ``function(*inputs, *fixed)``; on a GPU by replaying what it launched the first time.

    The function must do the same launches for the same ``key`` and shapes, without looking at numbers. On a GPU the results are
    overwritten by the next replay with the same key and shapes; copy them to keep them. They may be passed to another
    function as ``fixed``: they are not copied, and it may write into them.
    """
    # a graph has one memory, so two threads cannot replay it; two recordings at a time make torch abort
    alone = threading.current_thread() is threading.main_thread()
    if not inputs[0].is_cuda or not alone:
        return tuple(function(*inputs, *fixed))
    with on_device_of(inputs[0]):  # recorded, and replayed, on the streams of that device
        return _graph(function, inputs, key, fixed)(inputs)


def _graph(
    function: Callable[..., Sequence[Tensor]], inputs: Sequence[Tensor], key: Hashable, fixed: Sequence[Tensor]
) -> _Graph:
    """The graph for these shapes, recorded if there is none."""
    known = (key, *((t.shape, t.dtype, t.device) for t in inputs), *(t.data_ptr() for t in fixed))
    graph = _graphs.pop(known, None) or _Graph(function, inputs, fixed)
    _graphs[known] = graph
    while len(_graphs) > KEPT:
        _graphs.popitem(last=False)
    return graph

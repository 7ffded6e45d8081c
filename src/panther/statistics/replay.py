"""Many small GPU operations replayed as one CUDA graph: launching them one by one from Python takes longer than they do."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence

import torch
from torch import Tensor

from panther.statistics.gpu import on_device_of

KEPT = 32  # graphs
_graphs: "OrderedDict[Hashable, _Graph]" = OrderedDict()  # of the main thread


class _Graph:
    """A function's launches on tensors of given shapes, recorded once."""

    def __init__(
        self, function: Callable[..., Sequence[Tensor]], inputs: Sequence[Tensor], fixed: Sequence[Tensor]
    ) -> None:
        self._inputs = [t.clone(memory_format=torch.contiguous_format) for t in inputs]
        self._fixed = fixed  # held: the recording knows their addresses
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

    The function must do the same launches for the same ``key`` and shapes, without looking at numbers. What is returned on a
    GPU is overwritten by the next replay with the same key and shapes: copy what is to stay. Such tensors may be
    handed to another function as ``fixed``: they are not copied, and it may write into them.
    """
    # a graph's memory is its own, so no two threads may replay the same one; and where two record at a time torch ends the process
    alone = threading.current_thread() is threading.main_thread()
    if not inputs[0].is_cuda or not alone:
        return tuple(function(*inputs, *fixed))
    with on_device_of(inputs[0]):  # recorded, and replayed, on the streams of that device
        return _graph(function, inputs, key, fixed)(inputs)


def _graph(
    function: Callable[..., Sequence[Tensor]], inputs: Sequence[Tensor], key: Hashable, fixed: Sequence[Tensor]
) -> _Graph:
    """The graph for these shapes, recorded where there is none."""
    known = (key, *((t.shape, t.dtype, t.device) for t in inputs), *(t.data_ptr() for t in fixed))
    graph = _graphs.pop(known, None) or _Graph(function, inputs, fixed)
    _graphs[known] = graph
    while len(_graphs) > KEPT:
        _graphs.popitem(last=False)
    return graph

"""Lloyd iterations in C: `compiled_lloyd.c`, of the same library as the compiled kernel; on the CPU, on one thread."""

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor

from panther.statistics.compiled import NAMES, VECTOR_BYTES, Library
from panther.statistics.sums import Statistics

RUNNING, SETTLED, EMPTY = range(3)


class _Lloyd(ctypes.Structure):
    _fields_ = [
        ("x", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("rows", "dim", "clusters")),
        *((name, ctypes.c_void_p) for name in ("origin", "energy", "label", "upper", "lower")),
        *((name, ctypes.c_void_p) for name in ("mass", "total", "before", "centroids", "memory")),
        *((name, ctypes.c_int64) for name in ("left", "state")),
    ]


def suits(x: Tensor) -> bool:
    """Whether C can do it: on the CPU, in float32 or float64."""
    return x.device.type == "cpu" and x.dtype in NAMES


class CompiledRun:
    """One run from given centroids (C, d) on a sample (m, d): labels, bounds and sums, which C keeps up to date."""

    def __init__(
        self, library: Library, x: Tensor, centroids: Tensor, origin: Tensor, energy: Tensor, most: int
    ) -> None:
        rows, dim = x.shape
        clusters, lanes = len(centroids), VECTOR_BYTES[library.name] // x.element_size()
        self.centroids, self.before = centroids.clone().contiguous(), centroids.clone().contiguous()
        self._mass = torch.zeros(clusters, dtype=torch.float64)
        self._total = torch.zeros(clusters, dim, dtype=torch.float64)
        lower = x.new_full((rows, -(-clusters // lanes) * lanes), torch.inf)
        lower[:, :clusters] = 0
        label, upper = torch.full((rows,), -1, dtype=torch.int32), x.new_full((rows,), torch.inf)
        own = (origin, energy, label, upper, lower, self._mass, self._total, self.before, self.centroids)
        self._held = [x, *own]  # the library has their addresses
        addresses = [t.data_ptr() for t in own]
        self.state = _Lloyd(x.data_ptr(), rows, dim, clusters, *addresses, None, most, RUNNING if most else SETTLED)
        size = library.function("lloyd_memory", x.dtype)(ctypes.byref(self.state))
        self._memory = torch.empty(size, dtype=torch.uint8)  # torch aligns it to 64 bytes
        self.state.memory = self._memory.data_ptr()

    @property
    def sums(self) -> Statistics:
        """Mass and sums about the origin."""
        none = self._mass.new_zeros(())
        return Statistics(self._mass, self._total, none, none, none)

    @property
    def empty(self) -> bool:
        """Whether it stopped because a cluster is empty."""
        return bool(self.state.state == EMPTY)

    def go_on(self) -> None:
        """Iterate further from its centroids, which somebody has moved, if it may."""
        self.state.state = RUNNING if self.state.left > 0 else SETTLED


def iterate(library: Library, runs: Sequence[CompiledRun], dtype: torch.dtype) -> None:
    """Iterate runs on one sample together until each has settled, has no iterations left, or stops because a cluster is empty."""
    states = (_Lloyd * len(runs))(*(run.state for run in runs))
    library.function("lloyd", dtype)(states, len(runs))
    for run, state in zip(runs, states, strict=True):
        run.state.left, run.state.state = state.left, state.state

"""Lloyd iterations in C: `compiled_lloyd.c`, of the same library as the compiled kernel; on the CPU, on one thread."""

import ctypes

import torch
from torch import Tensor

from panther.statistics.compiled import NAMES, VECTOR_BYTES, Library
from panther.statistics.sums import Statistics


class _Lloyd(ctypes.Structure):
    _fields_ = [
        ("x", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("rows", "dim", "clusters")),
        ("origin", ctypes.c_void_p),
        ("slack", ctypes.c_double),
        *((name, ctypes.c_void_p) for name in ("label", "upper", "lower", "mass", "total", "before", "centroids")),
        ("memory", ctypes.c_void_p),
    ]


def suits(x: Tensor) -> bool:
    """Whether C can do it: on the CPU, in float32 or float64."""
    return x.device.type == "cpu" and x.dtype in NAMES


class CompiledLloyd:
    """One run from given centroids (C, d) on a sample (m, d): labels, bounds and sums, which C keeps up to date."""

    def __init__(self, library: Library, x: Tensor, centroids: Tensor, origin: Tensor, slack: float) -> None:
        self._library, self._dtype = library, x.dtype
        rows, dim = x.shape
        clusters, lanes = len(centroids), VECTOR_BYTES[library.name] // x.element_size()
        self.centroids, self.before = centroids.clone().contiguous(), centroids.clone().contiguous()
        self._mass = torch.zeros(clusters, dtype=torch.float64)
        self._total = torch.zeros(clusters, dim, dtype=torch.float64)
        lower = x.new_full((rows, -(-clusters // lanes) * lanes), torch.inf)
        lower[:, :clusters] = 0
        label, upper = torch.full((rows,), -1, dtype=torch.int32), x.new_full((rows,), torch.inf)
        self._held = [x.contiguous(), origin.contiguous(), label, upper, lower]  # the library has their addresses
        own = (self._held[1], *self._held[2:], self._mass, self._total, self.before, self.centroids)
        addresses = [t.data_ptr() for t in own]
        self._state = _Lloyd(self._held[0].data_ptr(), rows, dim, clusters, addresses[0], slack, *addresses[1:])
        size = library.function("lloyd_memory", x.dtype)(ctypes.byref(self._state))
        self._memory = torch.empty(size, dtype=torch.uint8)
        self._state.memory = self._memory.data_ptr()

    @property
    def sums(self) -> Statistics:
        """Mass and sums about the origin."""
        none = self._mass.new_zeros(())
        return Statistics(self._mass, self._total, none, none, none)

    def iterate(self, most: int) -> tuple[int, bool]:
        """Iterate until nothing moves, at most so many times; returns how often, and whether it stopped because a cluster is empty."""
        done = self._library.function("lloyd", self._dtype)(ctypes.byref(self._state), most)
        return abs(done), done < 0

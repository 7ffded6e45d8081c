"""The compiled kernels through ctypes, where the build found a compiler; on the CPU and without gradients.

`compiled_kernel.c` walks over a bag, `compiled_mixture.c` has what EM does between two walks, `compiled_lloyd.c` K-means,
`compiled_neighbours.c` neighbouring places and `compiled_sinkhorn.c` optimal transport.
"""

import ctypes
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from panther.errors import InputError, check_choice
from panther.machine import kernel_threads
from panther.statistics.assign import NEGLIGIBLE, Accumulated, Logits, Statistics
from panther.statistics.blocks import block_rows
from panther.types import Ragged, Rows

LIBRARY = Path(__file__).with_name("_compiled.so")  # built by hatch_build.py
INTERFACE = 10  # version of the C interface; other libraries are not used
VECTOR_BYTES = {"avx512": 64, "avx2": 32, "plain": 16}  # instruction sets, the best first
UNIT = 512  # rows of one thread at a time
KINDS = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2, torch.float64: 3}
NAMES = {torch.float32: "float", torch.float64: "double"}
POINTER, WHOLE, REAL = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "pack": (WHOLE, [POINTER, POINTER]),
    "scratch": (WHOLE, [POINTER]),
    "walk": (None, [POINTER] * 4),
    "touch": (None, [POINTER, WHOLE, WHOLE, POINTER, WHOLE, *[POINTER] * 3]),
    "regions": (None, [POINTER, WHOLE, WHOLE, POINTER, WHOLE, *[POINTER] * 4]),
    "lloyd_memory": (WHOLE, [POINTER]),
    "lloyd": (None, [POINTER, WHOLE]),
    "sinkhorn": (WHOLE, [POINTER]),
    "factors": (None, [WHOLE, WHOLE, *[POINTER] * 6]),
    "maximise": (None, [WHOLE, WHOLE, REAL, *[POINTER] * 8]),
    "far_out": (WHOLE, [WHOLE, WHOLE, REAL, *[POINTER] * 3]),
    "moments": (None, [POINTER, WHOLE, WHOLE, POINTER, POINTER, WHOLE, WHOLE, *[POINTER] * 3]),
}
SOFT, HARD, DISTANCES = range(3)
RUNNING, SETTLED, EMPTY = range(3)  # states of a run of K-means
CHOICES = ("auto", "compiled", "torch")  # of PANTHER_KERNEL
FEW = 16  # prototypes, up to which C is as fast as matrix products whatever the posteriors are
CRISP = 0.25  # share of posteriors that are not zero, up to which it is for more of them, because zeros are skipped


class _Parameters(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int64) for name in ("dim", "prototypes", "mode", "squares")),
        *((name, ctypes.c_double) for name in ("temperature", "negligible")),
        *((name, ctypes.c_void_p) for name in ("origin", "linear", "quadratic", "bias", "common")),
    ]


class _Slice(ctypes.Structure):
    _fields_ = [
        ("x", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("rows", "stride", "kind")),
        *((name, ctypes.c_void_p) for name in ("assignment", "scores")),
        *((name, ctypes.c_int64) for name in ("first", "begun")),
    ]


class _Sums(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("mass", "score", "total", "square")),
        *((name, ctypes.c_int64) for name in ("merged", "stopped")),
    ]


class _Lloyd(ctypes.Structure):
    _fields_ = [
        ("x", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("rows", "dim", "clusters")),
        *((name, ctypes.c_void_p) for name in ("origin", "energy", "label", "upper", "lower")),
        *((name, ctypes.c_void_p) for name in ("mass", "total", "before", "centroids", "memory")),
        *((name, ctypes.c_int64) for name in ("left", "state")),
    ]


class _Transport(ctypes.Structure):
    _fields_ = [
        ("cost", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("rows", "count", "iterations", "check_every")),
        *((name, ctypes.c_double) for name in ("tolerance", "large")),
        *((name, ctypes.c_void_p) for name in ("kernel", "potentials", "scaling", "marginal")),
        ("violation", ctypes.c_double),
    ]


@dataclass(frozen=True)
class Library:
    """The library, and the best instruction set of this processor."""

    name: str  # a key of VECTOR_BYTES
    functions: ctypes.CDLL

    def function(self, what: str, dtype: torch.dtype) -> Any:
        """Return a function of the library, for the type of the arithmetic."""
        return getattr(self.functions, f"{what}_{NAMES[dtype]}_{self.name}")


@cache
def load_library() -> Library | str:
    """Return the compiled kernel, or the reason why there is none."""
    if not LIBRARY.exists():
        return "it was not built: no C compiler was found when panther was installed"
    try:
        functions = ctypes.CDLL(str(LIBRARY))
        loaded = functions.interface_float_plain()
        if loaded != INTERFACE:
            return f"{LIBRARY.name} is of another version of panther; build it again with `python hatch_build.py`, or install panther again"
        usable = [name for name in VECTOR_BYTES if hasattr(functions, f"usable_float_{name}")]
        best = next(name for name in usable if getattr(functions, f"usable_float_{name}")())
        for number in NAMES.values():
            for what, (result, arguments) in SIGNATURES.items():
                function = getattr(functions, f"{what}_{number}_{best}")
                function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        return f"{LIBRARY.name} cannot be used ({error}); install panther again"
    return Library(best, functions)


def wanted_kernel() -> str:
    """Value of the environment variable PANTHER_KERNEL, which workers inherit."""
    wanted = os.environ.get("PANTHER_KERNEL", "auto")
    check_choice("kernel (PANTHER_KERNEL)", wanted, CHOICES)
    return wanted


def compiled_kernel() -> Library | None:
    """Return the compiled kernel if it exists and is enabled."""
    wanted = wanted_kernel()
    loaded = None if wanted == "torch" else load_library()
    if wanted == "compiled" and isinstance(loaded, str):
        raise InputError(
            f"PANTHER_KERNEL=compiled, but there is no compiled kernel: {loaded}. Unset it to compute in torch."
        )
    return None if isinstance(loaded, str) else loaded


def suits(x: Rows | Ragged, assign: Logits, origin: Tensor) -> bool:
    """Whether this kernel computes this: one bag, on the CPU, in float32 or float64."""
    factors = [t for t in (assign.linear, assign.bias, assign.quadratic, assign.common) if t is not None]
    return (
        len(x.shape) == 2
        and origin.dtype in NAMES
        and assign.linear.dim() == 2
        and all(t.device.type == "cpu" and t.dtype == origin.dtype for t in (origin, *factors))
    )


def accumulate_compiled(
    library: Library,
    x: Rows,
    assign: Logits,
    origin: Tensor,
    *,
    squares: bool,
    keep_assignment: bool,
    keep_scores: bool,
) -> Accumulated:
    """One pass in C, threads over slices, sums merged in the order of the rows. See :func:`panther.statistics.accumulate`."""
    patches, count = int(x.shape[0]), assign.linear.shape[-1]
    kept = torch.empty(patches, count, dtype=origin.dtype) if keep_assignment else None
    scores = torch.empty(patches, dtype=origin.dtype) if keep_scores else None
    walk = _Walk(library, assign, origin, HARD if assign.hard else SOFT, squares)
    walk.over(x, kept, scores)
    sums = Statistics(*walk.sums, torch.tensor(float(patches), dtype=torch.float64))
    return Accumulated(sums, kept, scores)


def distances_compiled(library: Library, x: Rows, linear: Logits, origin: Tensor) -> Tensor:
    """Squared distances (N, k): what is linear in the rows, and their own squares."""
    out = torch.empty(int(x.shape[0]), linear.linear.shape[-1], dtype=origin.dtype)
    _Walk(library, linear, origin, DISTANCES, squares=False).over(x, out)
    return out


class _Walk:
    """One pass over rows: parameters in the layout of the library, and the sums."""

    def __init__(self, library: Library, assign: Logits, origin: Tensor, mode: int, squares: bool) -> None:
        self._library, self._dtype = library, origin.dtype
        dim, count = assign.linear.shape
        factors = (origin, assign.linear, assign.quadratic, assign.bias, assign.common)
        self._held = [None if t is None else t.contiguous() for t in factors]  # the library has their addresses
        addresses = (None if t is None else t.data_ptr() for t in self._held)
        self._parameters = _Parameters(dim, count, mode, squares, assign.temperature, NEGLIGIBLE, *addresses)
        pack, parameters = library.function("pack", self._dtype), ctypes.byref(self._parameters)
        if size := pack(parameters, None):
            self._held.append(origin.new_empty(size))
            pack(parameters, self._held[-1].data_ptr())  # type: ignore[union-attr]
        sizes = [count, 1, *[0 if mode == DISTANCES else count * dim] * 2]
        mass, score, total, square = torch.from_numpy(np.zeros(sum(sizes))).split(sizes)
        shape = -1 if mode == DISTANCES else count, dim
        self.sums = mass, total.view(shape), square.view(shape), score[0]
        self._sums = _Sums(*(t.data_ptr() for t in (mass, score, total, square)))

    def over(self, x: Rows, out: Tensor | None, scores: Tensor | None = None) -> None:
        """Compute on the allowed number of threads; rows in memory are shared, others are read slice by slice."""
        whole, dim = int(x.shape[0]), int(x.shape[1])
        step = max(UNIT, block_rows(dim, x.dtype.itemsize, "cpu") // UNIT * UNIT)
        threads = min(kernel_threads(), -(-whole // step))
        whole_bag = self._slice(x, 0, (out, scores)) if isinstance(x, Tensor) and _plain(x) else None
        starts: Iterator[int] = repeat(0, threads) if whole_bag else iter(range(0, whole, step))
        reading = threading.Lock()
        failures: list[BaseException] = []
        parameters, sums, dtype = ctypes.byref(self._parameters), ctypes.byref(self._sums), self._dtype
        size, walk = self._library.function("scratch", dtype)(parameters), self._library.function("walk", dtype)

        def work() -> None:
            try:
                scratch = torch.empty(size, dtype=torch.uint8)
                while not failures:
                    with reading:
                        start = next(starts, None)
                        if start is None:
                            return
                        part = whole_bag or self._slice(x[start : start + step], start, (out, scores))
                    walk(parameters, ctypes.byref(part[0]), scratch.data_ptr(), sums)
            except BaseException as error:
                failures.append(error)
                self._sums.stopped = 1  # other threads do not wait for one that has failed

        others = [threading.Thread(target=work) for _ in range(threads - 1)]
        for thread in others:
            thread.start()
        work()
        for thread in others:
            thread.join()
        if failures:
            raise failures[0]

    def _slice(self, block: Tensor, start: int, kept: tuple[Tensor | None, ...]) -> tuple[_Slice, Tensor]:
        """Rows in the layout of the library, and the tensors that hold them."""
        if not _plain(block):
            block = block.to("cpu", block.dtype if block.dtype in KINDS else self._dtype).contiguous()
        addresses = (None if t is None else t.data_ptr() + start * t.stride(0) * t.element_size() for t in kept)
        stride = block.stride(0) * block.element_size()
        return _Slice(block.data_ptr(), len(block), stride, KINDS[block.dtype], *addresses, start), block


def _plain(x: Tensor) -> bool:
    """Whether the library can read these rows where they are."""
    return x.dtype in KINDS and x.device.type == "cpu" and (x.stride(1) == 1 or x.shape[1] == 1)


def library_for(*tensors: Tensor) -> Library | None:
    """Return the compiled kernel if it computes this: one bag, on the CPU, in float64, without gradients."""
    if any(t.dim() > 2 or not suits_tensor(t, torch.float64) for t in tensors):
        return None
    return compiled_kernel()


def factors_compiled(
    library: Library, weights: Tensor, means: Tensor, variances: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Linear factors (d, C), bias (1, C) and quadratic factors (d, C) of a mixture's logits; none where a variance (1, d) is shared."""
    count, dim = means.shape
    linear, bias = torch.empty(dim, count, dtype=dtype), torch.empty(1, count, dtype=dtype)
    quadratic = None if len(variances) == 1 else torch.empty_like(linear)
    tensors = [t.contiguous() for t in (weights, means, variances)]
    made = (None if t is None else t.data_ptr() for t in (linear, quadratic, bias))
    library.function("factors", dtype)(count, dim, *(t.data_ptr() for t in tensors), *made)
    return linear, bias, quadratic


def maximise_compiled(
    library: Library, sums: Statistics, centres: Tensor, variance: Tensor, tau: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Weights (C,), means and variances (C, d) of the sums."""
    count, dim = centres.shape
    made = torch.empty(count, dtype=torch.float64), torch.empty_like(centres), torch.empty_like(centres)
    tensors = [t.contiguous() for t in (sums.mass, sums.total, sums.square, centres, variance)]
    library.function("maximise", torch.float64)(count, dim, tau, *(t.data_ptr() for t in (*tensors, *made)))
    return made


def far_out_compiled(library: Library, mass: Tensor, means: Tensor, variances: Tensor, most: float) -> bool:
    """Whether a component of more than one patch lies far from the origin, in units of its variance."""
    tensors = [t.contiguous() for t in (mass, means, variances)]
    return bool(library.function("far_out", torch.float64)(*means.shape, most, *(t.data_ptr() for t in tensors)))


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
        buffers = (origin, energy, label, upper, lower, self._mass, self._total, self.before, self.centroids)
        self._held = [x, *buffers]  # the library has their addresses
        addresses = [t.data_ptr() for t in buffers]
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
        """Continue from its centroids after they were moved."""
        self.state.state = RUNNING if self.state.left > 0 else SETTLED


def iterate(library: Library, runs: Sequence[CompiledRun], dtype: torch.dtype) -> None:
    """Iterate runs on one sample together until each has settled, has no iterations left, or stops because a cluster is empty."""
    states = (_Lloyd * len(runs))(*(run.state for run in runs))
    library.function("lloyd", dtype)(states, len(runs))
    for run, state in zip(runs, states, strict=True):
        run.state.left, run.state.state = state.left, state.state


def crisp(rows: Tensor) -> bool:
    """Whether C is at least as fast as matrix products of these posteriors."""
    return rows.shape[1] <= FEW or int(torch.count_nonzero(rows)) <= CRISP * rows.numel()


def touch_compiled(library: Library, rows: Tensor, ahead: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
    """Products (C, C) of each place (P, C) with those ahead of it (P, 2 or 4), and with itself; the mass (C,)."""
    rows, count = rows.contiguous(), rows.shape[1]
    scratch = torch.empty(2 * count * (count + 1), dtype=rows.dtype)
    sums, mass = torch.empty(count, 2 * count, dtype=torch.float64), torch.empty(count, dtype=torch.float64)
    outputs = [t.data_ptr() for t in (scratch, sums, mass)]
    library.function("touch", rows.dtype)(*_neighbour_inputs(rows, ahead), *outputs)
    return sums[:, :count], sums[:, count:], mass


def regions_compiled(library: Library, rows: Tensor, ahead: np.ndarray) -> tuple[Tensor, Tensor]:
    """Places (C,) by their likeliest prototype, and the number of connected regions (C,) that they form."""
    rows = rows.contiguous()
    label, parent = torch.empty(2, len(rows), dtype=torch.int32)
    likeliest, regions = torch.empty(2, rows.shape[1], dtype=torch.int64)
    outputs = [t.data_ptr() for t in (label, parent, likeliest, regions)]
    library.function("regions", rows.dtype)(*_neighbour_inputs(rows, ahead), *outputs)
    return likeliest, regions


def _neighbour_inputs(rows: Tensor, ahead: np.ndarray) -> tuple[int, ...]:
    assert ahead.dtype == np.int32
    assert ahead.flags.c_contiguous
    return rows.data_ptr(), *rows.shape, ahead.ctypes.data, ahead.shape[1]


def sinkhorn_compiled(
    library: Library, cost: Tensor, iterations: int, check_every: int, tolerance: float, large: float
) -> tuple[Tensor, float, int]:
    """Potentials (C,) of costs (N, C), the violation of the uniform marginal that is left, and the iterations made."""
    cost = cost.contiguous()
    rows, count = cost.shape
    lanes = VECTOR_BYTES[library.name] // cost.element_size()
    width = -(-count // lanes) * lanes
    kernel, small = cost.new_empty(rows, width), cost.new_zeros(3, width)
    settings = (rows, count, iterations, check_every, tolerance, large)
    addresses = [kernel.data_ptr(), *(row.data_ptr() for row in small)]
    state = _Transport(cost.data_ptr(), *settings, *addresses, 0.0)
    done = library.function("sinkhorn", cost.dtype)(ctypes.byref(state))
    return small[0, :count].clone(), state.violation, done


def suits_tensor(x: Tensor, *dtypes: torch.dtype) -> bool:
    """Whether C can read this tensor: on the CPU, of one of these types (float32 or float64), without gradients."""
    learns = torch.is_grad_enabled() and x.requires_grad
    return x.device.type == "cpu" and x.dtype in (dtypes or NAMES) and not learns

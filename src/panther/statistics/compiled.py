"""The compiled kernel: `compiled_kernel.c` through ctypes, where the build found a compiler; on the CPU and without gradients."""

import ctypes
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from panther.machine import kernel_threads
from panther.statistics.assign import NEGLIGIBLE, Logits
from panther.statistics.blocks import block_rows
from panther.statistics.sums import Accumulated, Statistics
from panther.types import Ragged, Rows

LIBRARY = Path(__file__).with_name("_compiled.so")  # hatch_build.py makes it
INTERFACE = 10  # of the C files: a library of another number is not used
VECTOR_BYTES = {"avx512": 64, "avx2": 32, "plain": 16}  # instruction sets, the best first
UNIT = 512  # rows that one thread walks at a time
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


@dataclass(frozen=True)
class Library:
    """The library, and the instruction set that this processor is best at."""

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
        found = functions.interface_float_plain()
        if found != INTERFACE:
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


def suits(x: Rows | Ragged, assign: Logits, origin: Tensor) -> bool:
    """Whether this kernel can do it: one bag, on the CPU, in float32 or float64."""
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
    """One walk over rows: the parameters as the library wants them, and the sums."""

    def __init__(self, library: Library, assign: Logits, origin: Tensor, mode: int, squares: bool) -> None:
        self._library, self._dtype = library, origin.dtype
        dim, count = assign.linear.shape
        factors = (origin, assign.linear, assign.quadratic, assign.bias, assign.common)
        self._held = [None if t is None else t.contiguous() for t in factors]  # the library has their addresses
        addresses = (None if t is None else t.data_ptr() for t in self._held)
        self._parameters = _Parameters(dim, count, mode, squares, assign.temperature, NEGLIGIBLE, *addresses)
        pack, given = library.function("pack", self._dtype), ctypes.byref(self._parameters)
        if size := pack(given, None):
            self._held.append(origin.new_empty(size))
            pack(given, self._held[-1].data_ptr())  # type: ignore[union-attr]
        sizes = [count, 1, *[0 if mode == DISTANCES else count * dim] * 2]
        mass, score, total, square = torch.from_numpy(np.zeros(sum(sizes))).split(sizes)
        shape = -1 if mode == DISTANCES else count, dim
        self.sums = mass, total.view(shape), square.view(shape), score[0]
        self._sums = _Sums(*(t.data_ptr() for t in (mass, score, total, square)))

    def over(self, x: Rows, out: Tensor | None, scores: Tensor | None = None) -> None:
        """Compute on as many threads as are allowed: they share what is in memory, else slices are read one after the other."""
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
                self._sums.stopped = 1  # nobody waits for the turn of a thread that has failed

        others = [threading.Thread(target=work) for _ in range(threads - 1)]
        for thread in others:
            thread.start()
        work()
        for thread in others:
            thread.join()
        if failures:
            raise failures[0]

    def _slice(self, block: Tensor, start: int, kept: tuple[Tensor | None, ...]) -> tuple[_Slice, Tensor]:
        """Rows as the library wants them, and what must live as long."""
        if not _plain(block):
            block = block.to("cpu", block.dtype if block.dtype in KINDS else self._dtype).contiguous()
        addresses = (None if t is None else t.data_ptr() + start * t.stride(0) * t.element_size() for t in kept)
        stride = block.stride(0) * block.element_size()
        return _Slice(block.data_ptr(), len(block), stride, KINDS[block.dtype], *addresses, start), block


def _plain(x: Tensor) -> bool:
    """Whether the library can read these rows where they are."""
    return x.dtype in KINDS and x.device.type == "cpu" and (x.stride(1) == 1 or x.shape[1] == 1)

"""The compiled kernel: `compiled_kernel.c` through ctypes, where the build found a compiler; on the CPU and without gradients."""

import ctypes
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from panther.statistics.assign import NEGLIGIBLE, Logits
from panther.statistics.blocks import blocks
from panther.statistics.sums import Accumulated, Statistics
from panther.types import Ragged, Rows
from panther.workers import kernel_threads

LIBRARY = Path(__file__).with_name("_compiled.so")  # hatch_build.py makes it
INTERFACE = 8  # of the C files: a library of another number is not used
VECTOR_BYTES = {"avx512": 64, "avx2": 32, "plain": 16}  # instruction sets, the best first
COLUMNS = 16  # of a tile
KINDS = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2, torch.float64: 3}
NAMES = {torch.float32: "float", torch.float64: "double"}
POINTER, WHOLE = ctypes.c_void_p, ctypes.c_int64
SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "scratch": (WHOLE, [POINTER]),
    "parts": (WHOLE, [POINTER, WHOLE]),
    "walk": (None, [POINTER] * 6),
    "merge": (None, [POINTER, WHOLE, *[POINTER] * 3]),
    "touch": (None, [POINTER, WHOLE, WHOLE, POINTER, WHOLE, *[POINTER] * 3]),
    "regions": (None, [POINTER, WHOLE, WHOLE, POINTER, WHOLE, *[POINTER] * 4]),
    "lloyd_memory": (WHOLE, [POINTER]),
    "lloyd": (None, [POINTER, WHOLE]),
    "sinkhorn": (WHOLE, [POINTER]),
    "moments": (None, [POINTER, WHOLE, WHOLE, POINTER, POINTER, WHOLE, WHOLE, *[POINTER] * 3]),
}
SOFT, HARD, DISTANCES = range(3)


class _Parameters(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int64) for name in ("dim", "prototypes", "panels", "mode", "squares")),
        *((name, ctypes.c_double) for name in ("temperature", "negligible")),
        *((name, ctypes.c_void_p) for name in ("origin", "linear", "quadratic", "bias", "common")),
    ]


class _Slice(ctypes.Structure):
    _fields_ = [
        ("x", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("rows", "stride", "kind")),
        ("assignment", ctypes.c_void_p),
        ("scores", ctypes.c_void_p),
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
    mass, score = walk.small.split([count, 1])
    sums = Statistics(mass, walk.total, walk.square, score[0], mass.new_tensor(float(patches)))
    return Accumulated(sums, kept, scores)


def distances_compiled(library: Library, x: Rows, linear: Logits, origin: Tensor) -> Tensor:
    """Squared distances (N, k): what is linear in the rows, and their own squares."""
    out = torch.empty(int(x.shape[0]), linear.linear.shape[-1], dtype=origin.dtype)
    _Walk(library, linear, origin, DISTANCES, squares=False).over(x, out)
    return out


class _Walk:
    """One walk over rows: the parameters as the library wants them, and the sums, to which slices are added in their order."""

    def __init__(self, library: Library, assign: Logits, origin: Tensor, mode: int, squares: bool) -> None:
        self._library, self._origin = library, origin
        self._lanes = VECTOR_BYTES[library.name] // origin.element_size()
        dim, count = assign.linear.shape
        panels = -(-count // self._lanes)
        self._held = [  # the library has their addresses
            torch.nn.functional.pad(origin, (0, -dim % COLUMNS)),
            self._panels(assign.linear, panels),
            None if assign.quadratic is None else self._panels(assign.quadratic, panels),
            torch.nn.functional.pad(assign.bias.reshape(-1), (0, panels * self._lanes - count), value=-torch.inf),
            None if assign.common is None else torch.nn.functional.pad(assign.common, (0, -dim % COLUMNS)),
        ]
        addresses = (None if t is None else t.data_ptr() for t in self._held)
        self._parameters = _Parameters(dim, count, panels, mode, squares, assign.temperature, NEGLIGIBLE, *addresses)
        self.small = torch.zeros(count + 1, dtype=torch.float64)  # mass and score
        self.total, self.square = torch.zeros(2, count, dim, dtype=torch.float64)
        self._next, self._turn = 0, threading.Condition()
        self._failure: BaseException | None = None

    def _panels(self, factors: Tensor, panels: int) -> Tensor:
        """(d, C) -> (panels, d, lanes), filled up with zeros."""
        dim, count = factors.shape
        wide = torch.nn.functional.pad(factors, (0, panels * self._lanes - count, 0, -dim % COLUMNS))
        return wide.view(len(wide), panels, self._lanes).transpose(0, 1).contiguous()

    def over(self, x: Rows, out: Tensor | None, scores: Tensor | None = None) -> None:
        """Compute slice by slice, on as many threads as are allowed; slices are read one after the other."""
        source = _numbered(x, self._origin)
        first = next(source)
        slices = -(-int(x.shape[0]) // len(first[2]))
        reading = threading.Lock()

        def work(item: tuple[int, int, Tensor] | None = None) -> None:
            try:
                memory = self._memory(len(first[2]))
                while self._failure is None:
                    if item is None:
                        with reading:
                            item = next(source, None)
                    if item is None:
                        return
                    self._one(*item, (out, scores), *memory)
                    item = None
            except BaseException as error:
                with self._turn:
                    self._failure = error
                    self._turn.notify_all()

        others = [threading.Thread(target=work) for _ in range(min(kernel_threads(), slices) - 1)]
        for thread in others:
            thread.start()
        work(first)
        for thread in others:
            thread.join()
        if self._failure is not None:
            raise self._failure

    def _memory(self, rows: int) -> tuple[Tensor, Tensor, Tensor]:
        """What one thread needs: scratch, sums of the units of one slice, mass and score of one slice."""
        p, dtype = ctypes.byref(self._parameters), self._origin.dtype
        scratch, parts = self._library.function("scratch", dtype)(p), self._library.function("parts", dtype)(p, rows)
        raw = torch.empty(scratch, dtype=torch.uint8), torch.empty(parts, dtype=torch.uint8)
        return *raw, torch.empty_like(self.small)

    def _one(
        self, number: int, start: int, block: Tensor, kept: tuple[Tensor | None, Tensor | None], *memory: Tensor
    ) -> None:
        scratch, parts, small = memory
        if block.dtype not in KINDS:
            block = block.to(self._origin.dtype)
        if block.stride(1) != 1 and block.shape[1] > 1:
            block = block.contiguous()
        rows, dtype, p = len(block), self._origin.dtype, ctypes.byref(self._parameters)
        addresses = (None if t is None else t.data_ptr() + start * t.stride(0) * t.element_size() for t in kept)
        piece = _Slice(block.data_ptr(), rows, block.stride(0) * block.element_size(), KINDS[block.dtype], *addresses)
        self._library.function("walk", dtype)(p, ctypes.byref(piece), *_pointers(scratch, parts, small, small[-1:]))
        if self._parameters.mode == DISTANCES:
            return
        with self._turn:
            self._turn.wait_for(lambda: self._next == number or self._failure is not None)
            if self._failure is None:
                merge = self._library.function("merge", dtype)
                merge(p, rows, *_pointers(parts, self.total, self.square))
                self.small += small
            self._next += 1
            self._turn.notify_all()


def _numbered(x: Rows, origin: Tensor) -> Iterator[tuple[int, int, Tensor]]:
    start = 0
    for number, (block, _) in enumerate(blocks(x, None, origin)):
        yield number, start, block
        start += len(block)


def _pointers(*tensors: Tensor) -> list[int]:
    return [t.data_ptr() for t in tensors]

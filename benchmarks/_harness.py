"""What the benchmarks share: the machine in one line, interleaved medians, peak extra memory, one markdown table."""

import ctypes
import gc
import importlib.metadata
import multiprocessing
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch


def machine(*packages: str) -> str:
    """Name the machine and the versions that the numbers belong to."""
    found = {name: _version(name) for name in ("torch", "numpy", *packages)}
    gpu = [torch.cuda.get_device_name()] if torch.cuda.is_available() else []
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    load = f"load {os.getloadavg()[0]:.1f} at the start"  # OpenMP peers suffer most from a busy core: measure on a quiet machine
    hardware = [_processor(), f"{len(os.sched_getaffinity(0))} cores", f"{memory:.0f} GB", *gpu, load]
    return f"{', '.join(hardware)}; Python {platform.python_version()}, " + ", ".join(
        f"{name} {version}" for name, version in found.items()
    )


def interleaved(
    sides: Mapping[str, Callable[[], Any]], rounds: int, warm_up: int = 1, synchronise: Callable[[], Any] = lambda: None
) -> dict[str, float]:
    """Median seconds of each side: a, b, a, b, ..., so that a busy minute of the machine hurts both; warm-up not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(warm_up + rounds):
        for name, side in sides.items():
            took = timed(side, synchronise)[0]
            if number >= warm_up:
                seconds[name].append(took)
    return {name: statistics.median(values) for name, values in seconds.items()}


def timed(side: Callable[[], Any], synchronise: Callable[[], Any] = lambda: None) -> tuple[float, Any]:
    """Seconds and result of one call."""
    gc.collect()
    synchronise()
    start = time.perf_counter()
    result = side()
    synchronise()
    return time.perf_counter() - start, result


def peak_extra(prepare: Callable[..., AbstractContextManager[Callable[[], Any]]], *args: Any) -> float:
    """MB that a call needs at its peak beyond what was resident before it, in a process of its own.

    ``prepare(*args)`` makes the input, warms up on a little of it and gives the call (a context manager). Resident memory of the process
    and of the workers it has started is counted, pages of memory-mapped files included, by the kernel's own high-water
    mark: exact, nothing is sampled.
    """
    context = multiprocessing.get_context("spawn")
    receive, send = context.Pipe(duplex=False)
    child = context.Process(target=_measure, args=(send, prepare, args))
    child.start()
    send.close()
    try:
        return receive.recv()
    except EOFError:
        raise RuntimeError(f"The process that measures the memory of {prepare.__name__}{args} died.") from None
    finally:
        child.join()


def _measure(send: Any, prepare: Callable[..., Any], args: tuple[Any, ...]) -> None:
    with prepare(*args) as call:
        send.send(_extra_of(call))


def _extra_of(call: Callable[[], Any]) -> float:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # memory freed earlier and kept by malloc would make the call look cheaper
    family = _family(os.getpid())
    before = sum(_status(pid, "VmRSS") for pid in family)
    for pid in family:
        Path(f"/proc/{pid}/clear_refs").write_text("5")  # start the high-water mark anew
    kept = call()  # noqa: F841 (what it returns is part of what it needs)
    return (sum(_status(pid, "VmHWM") for pid in family) - before) / 1024


def _family(pid: int) -> list[int]:
    children = [int(c) for task in Path(f"/proc/{pid}/task").iterdir() for c in (task / "children").read_text().split()]
    return [pid, *(p for child in children for p in _family(child))]


def _status(pid: int, field: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field + ":"))  # kB


def table(title: str, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print one markdown table."""
    cells = [[str(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    print(f"\n### {title}\n", *lines, sep="\n", flush=True)


def verdict(name: str, value: float, target: float | None, *, at_most: bool = False, unit: str = "x") -> list[str]:
    """Row of a table of targets."""
    if target is None:
        return [name, "-", f"{value:.2f}{unit}", "-"]
    met = value <= target if at_most else value >= target
    sign = "<=" if at_most else ">="
    return [name, f"{sign} {target:g}{unit}", f"{value:.2f}{unit}", "met" if met else "MISSED"]


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()

"""What handing out costs: 20,000 tiny slides, and workers that only wait, by a pool of processes and by Dask."""

import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch

import _harness as harness
from _simulated import Costs, Load, one_per_task, simulate
from panther.aggregators.embed import embed_bags
from panther.engine import Pool, Work, map_slides, open_executor
from panther.storage.bags import list_bags
from panther.types import Prototypes

PATCHES, DIM, COMPONENTS = 16, 32, 4
NAP = 0.05  # seconds that a worker waits for an item


def nothing(item: int) -> int:
    """An item that costs nothing: what is left is the handing out."""
    return item


def nap(item: int) -> int:
    """An item that keeps a worker, but no core."""
    time.sleep(NAP)
    return item


@contextmanager
def dask_cluster(workers: int, threads: int = 1) -> Iterator[tuple[str, int]]:
    """A scheduler and workers, each a process of its own; the address, and the scheduler's process."""
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "scheduler.json"
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": place}
        dask = [sys.executable, "-m", "distributed.cli.dask_scheduler"]
        scheduler = subprocess.Popen([*dask, "--port", "0", "--no-dashboard", "--scheduler-file", str(file)], **quiet)
        command = [sys.executable, "-m", "distributed.cli.dask_worker", "--scheduler-file", str(file), "--no-dashboard"]
        team = subprocess.Popen([*command, "--nworkers", str(workers), "--nthreads", str(threads)], **quiet)
        try:
            from distributed import Client

            with Client(scheduler_file=str(file), timeout="60s", set_as_default=False) as client:
                client.wait_for_workers(workers, timeout=120)
                address = client.scheduler.address
            yield address, scheduler.pid
        finally:
            for process in (team, scheduler):
                process.terminate()
                process.wait()


def rate(function: Callable[[int], int], items: int, executor: Executor | None) -> float:
    """Items a second; every result is checked."""
    start = time.perf_counter()
    values = [result.value for result in map_slides(function, range(items), executor)]
    seconds = time.perf_counter() - start
    assert values == list(range(items))
    return items / seconds


@contextmanager
def _counted(executor: Any) -> Iterator[Counter[str]]:
    """Count the tasks that are handed out."""
    tasks, submit = Counter[str](), executor.submit

    def counting(*args: Any, **kwargs: Any) -> Any:
        tasks["handed out"] += 1
        return submit(*args, **kwargs)

    executor.submit = counting
    try:
        yield tasks
    finally:
        del executor.submit


def overhead(items: int, single: int) -> dict[str, Costs]:
    """Items a second where an item costs nothing, one by one and together; what a task and an item cost by that."""
    rows, costs = [], {}
    here = rate(nothing, items, None)
    rows.append(["one process", f"{here:,.0f}", "-", "-"])

    def add(name: str, executor: Executor, memory: str = "-") -> None:
        rate(nothing, 200, executor)  # starts the workers
        with one_per_task():
            alone = rate(nothing, single, executor)
        with _counted(executor) as tasks:
            together = rate(nothing, items, executor)
        costs[name] = Costs(1 / alone, max(1e-6, 1 / together - tasks.total() / items / alone))
        rows.append([name, f"{together:,.0f}", f"{alone:,.0f}", memory])

    for workers in (1, 2):
        with open_executor(workers) as pool:
            add(f"pool, {workers}", pool)
    with dask_cluster(2) as (address, scheduler), open_executor(address) as team:
        process = psutil.Process(scheduler)
        before = process.memory_info().rss
        add("Dask, 2", team)
        rows[-1][-1] = f"{before / 1e6:.0f} -> {process.memory_info().rss / 1e6:.0f}"
    header = ["empty items", "items/s", "items/s, one per task", "scheduler's memory, MB"]
    harness.table(f"Handing out: {items:,} items", header, rows)
    return costs


def tiny_slides(count: int) -> None:
    """Embed tiny bags from files: what a cohort of small items sees of it."""
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "bags"
        folder.mkdir()
        for number in range(count):
            np.save(folder / f"{number:06}.npy", rng.normal(size=(PATCHES, DIM)).astype("f2"))
        refs, ready = list_bags(folder).refs, Prototypes(torch.randn(COMPONENTS, DIM))
        first, rows = None, []

        def add(name: str, executor: Executor | None) -> None:
            nonlocal first
            start = time.perf_counter()
            table = embed_bags(refs, ready, "panther", {}, work=Work(executor))
            seconds = time.perf_counter() - start
            first = table.vectors if first is None else first
            same = np.array_equal(first, table.vectors)
            rows.append(
                [name, f"{count / seconds:,.0f}", f"{rows[0][3] / seconds:.2f}x" if rows else "1.00x", seconds, same]
            )

        add("one process", None)
        for workers in (1, 2):
            with open_executor(workers) as pool:
                rate(nothing, 100, pool)
                add(f"pool, {workers}", pool)
        with dask_cluster(2) as (address, _), open_executor(address) as team:
            rate(nothing, 100, team)
            add("Dask, 2", team)
    rows = [
        [name, speed, ratio, f"{seconds:.1f}", "yes" if same else "NO"] for name, speed, ratio, seconds, same in rows
    ]
    harness.table(
        f"{count:,} slides of {PATCHES} x {DIM}, embedded",
        ["", "slides/s", "to one process", "seconds", "same numbers"],
        rows,
    )


def scaling(naps: int, pool_sizes: tuple[int, ...], dask_sizes: tuple[int, ...], costs: dict[str, Costs]) -> None:
    """Workers that wait instead of computing: how many the process that hands out keeps busy, and what the simulation says of it.

    The pause between two tasks of a worker is taken from the run with one worker; the others are predictions.
    """
    rows, pause = [], {}

    def add(name: str, workers: int, executor: Pool, cost: Costs) -> None:
        rate(nap, 4 * workers, executor)  # starts all of them
        items = naps * workers
        measured = rate(nap, items, executor) * NAP / workers
        load = Load(items, NAP, spread=0)
        if name not in pause:
            plain = simulate(load, workers, cost, executor.seconds_per_task)
            pause[name] = max(0.0, items * NAP / measured - plain.seconds) / plain.tasks
        expected = simulate(load, workers, replace(cost, delay=pause[name]), executor.seconds_per_task)
        rows.append([name, workers, items, f"{measured:.1%}", f"{expected.efficiency:.1%}", f"{expected.busy:.0%}"])

    for workers in pool_sizes:
        with open_executor(workers) as pool:
            add("pool", workers, pool, costs["pool, 2"])
    for workers in dask_sizes:
        with dask_cluster(1, workers) as (address, _), open_executor(address) as team:
            add("Dask", workers, team, costs["Dask, 2"])
    header = ["", "workers", "items", "efficiency measured", "simulated", "simulated: handing out is busy"]
    harness.table(f"Workers that wait {NAP * 1000:.0f} ms for each item", header, rows)

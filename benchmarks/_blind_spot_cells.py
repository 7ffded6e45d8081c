"""Cells of blind_spots.py, judged side by side and kept in a file: a stopped run goes on."""

import argparse
import json
import sys
from collections.abc import Callable, Container, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import Any

import numpy as np

Cell = tuple[str, int, str]  # question, seed, method
Job = tuple[str, int, list[str]]  # question, seed, methods


def judged(
    judge: Callable[..., list[tuple[Cell, list[float]]]],
    missing: Callable[[Container[Cell]], Iterator[Job]],
    how: argparse.Namespace,
) -> dict[Cell, np.ndarray]:
    """Logits of every cell, those of earlier runs too; ``missing`` names the jobs that are left."""
    found: dict[Cell, Any] = {}
    if how.cells.exists():
        for line in how.cells.read_text().splitlines():
            cell, logits = json.loads(line)
            found[tuple(cell)] = np.array(logits)
    with ProcessPoolExecutor(how.workers, get_context("spawn")) as pool, how.cells.open("a") as file:
        waiting = {pool.submit(judge, *job, how): job for job in missing(found)}
        for future in as_completed(waiting):
            for cell, logits in future.result():
                found[cell] = np.array(logits)
                file.write(json.dumps([cell, logits]) + "\n")
            file.flush()
            print("done:", *waiting[future], file=sys.stderr, flush=True)
    return found

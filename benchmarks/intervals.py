"""Intervals and comparisons of a study, from stored predictions to its tables: resamples as counts against a loop over resamples.

`python benchmarks/intervals.py` needs no arguments. Both sides are `panther.study.evaluate.evaluate`, each from its own source tree in a process of
its own, in turns: this tree, and the commit before resamples became counts, taken from git. Same files, same seeds; the tables of both are
compared as bytes.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import _harness as harness

BEFORE = "335dfaa"  # a Python loop measured every resample
ROOT = Path(__file__).resolve().parents[1]
FOLDS, SEEDS = 5, 3
METHODS = ["panther", "ot", "h2t", "protocounts"]
CASES = {  # title: classes (0: survival), patients
    "2 classes, 200 patients": (2, 200),
    "2 classes, 1,000 patients": (2, 1000),
    "6 classes, 1,000 patients": (6, 1000),
    "survival, 200 patients": (0, 200),
    "survival, 1,000 patients": (0, 1000),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--cells", type=int, default=4, help="cells of the study: 4, 8, 12, ...; 28 takes the old way half an hour"
    )
    parser.add_argument("--resamples", type=int, default=1000)
    parser.add_argument("--case", action="append", choices=list(CASES), help="only these")
    parser.add_argument("--side", help=argparse.SUPPRESS)  # what the child processes are told
    given = parser.parse_args()
    if given.side:
        return one_side(**json.loads(given.side))
    print(harness.machine("scipy", "pandas"))
    title = f"{given.cells} cells x {FOLDS * SEEDS} fold-seeds x {given.resamples:,} resamples, one process, one thread"
    header = ["study", "loop s", "counts s", "ratio", "tables", "largest difference"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        before = old_tree(folder / "before")
        rows = [compare(case, folder, before, given) for case in given.case or CASES]
    harness.table(title, header, rows)


def old_tree(folder: Path) -> Path:
    """Sources of the commit before."""
    folder.mkdir()
    archive = subprocess.run(["git", "archive", BEFORE, "src"], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
    subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
    return folder / "src"


def compare(case: str, folder: Path, before: Path, given: argparse.Namespace) -> list[str]:
    """Seconds of both sides (the median of three for the new one, which are in turns with the old one), and how far their tables are apart."""
    classes, patients = CASES[case]
    seconds: dict[Path, list[float]] = {before: [], ROOT / "src": []}
    for source in (ROOT / "src", before, ROOT / "src", ROOT / "src"):
        out = folder / case / ("before" if source == before else "now")
        asked = {"classes": classes, "patients": patients, "cells": given.cells, "resamples": given.resamples}
        command = [sys.executable, __file__, "--side", json.dumps({**asked, "folder": str(out)})]
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        subprocess.run(command, env=os.environ | threads | {"PYTHONPATH": str(source)}, check=True)
        seconds[source].append(json.loads((out / "seconds.json").read_text()))
    slow, quick = (float(np.median(values)) for values in seconds.values())
    return [case, f"{slow:.1f}", f"{quick:.2f}", f"{slow / quick:.0f}x", *difference(folder / case)]


def difference(folder: Path) -> list[str]:
    """Whether the CSVs of both sides are the same bytes, and the largest difference of a number in them."""
    same, largest = True, 0.0
    for name in ("metrics", "summary", "comparisons"):
        first, second = (folder / side / f"{name}.csv" for side in ("before", "now"))
        same &= first.read_bytes() == second.read_bytes()
        a, b = (pd.read_csv(file) for file in (first, second))
        text, numbers = a.select_dtypes(exclude="number").columns, a.select_dtypes("number").columns
        if not a[text].equals(b[text]) or not (a[numbers].isna() == b[numbers].isna()).all(None):
            return ["DIFFERENT", "-"]
        largest = max(largest, float(np.nanmax(np.abs(a[numbers] - b[numbers]).to_numpy())))
    return ["same bytes" if same else "other bytes", f"{largest:.0e}"]


def one_side(folder: str, classes: int, patients: int, cells: int, resamples: int) -> None:
    """Write a study's predictions, evaluate them with the package at hand, write the tables."""
    from panther.study.evaluate import evaluate

    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    run = study_run(out, classes, patients, cells, resamples)
    start = time.perf_counter()
    results = evaluate(run)
    (out / "seconds.json").write_text(json.dumps(time.perf_counter() - start))
    for name in ("metrics", "summary", "comparisons"):
        getattr(results, name).to_csv(out / f"{name}.csv", index=False)


def study_run(folder: Path, classes: int, patients: int, cells: int, resamples: int) -> Any:
    """Run of a study whose models are already trained: every patient is tested in one fold, predictions are a signal and noise."""
    from panther.study.file import parse_study
    from panther.study.population import Population
    from panther.study.training import StudyRun, Trained

    task = {"label": "y"} if classes else {"time": "days", "event": "dead"}
    study = parse_study(
        {
            "name": "intervals",
            "table": "table.csv",
            "features": {"features": "features"},
            "task": task,
            "methods": METHODS,
            "n_prototypes": [2 * n + 2 for n in range(cells // len(METHODS))],
            "seeds": list(range(SEEDS)),
            "bootstrap": resamples,
        }
    )
    rng = np.random.default_rng(0)
    signal, target = truth(rng, classes, patients)
    ids = tuple(f"p{n:04d}" for n in range(patients))
    population = Population(ids, ids, (None,) * patients, target, pd.DataFrame(index=list(ids)), (), {}, ())
    trained = []
    for cell in study.cells():
        for fold in range(FOLDS):
            path = folder / f"{len(trained)}.npz"
            test = np.arange(patients) % FOLDS == fold
            np.savez(path, **dict(predictions(rng, signal, {"train": ~test, "test": test}, np.array(ids), target)))
            trained.append(Trained(cell, fold, path, path))
    return StudyRun(study, population, trained, {}, {}, folder)


def truth(rng: np.random.Generator, classes: int, patients: int) -> tuple[np.ndarray, Any]:
    """What a perfect model would predict, and the target."""
    from panther.cohort.targets import Classes, Survival

    if classes:
        labels = rng.choice(classes, patients, p=np.arange(classes, 0, -1) / np.arange(classes, 0, -1).sum())
        return np.eye(classes)[labels], Classes(tuple("abcdefgh"[:classes]), labels)
    risk = rng.normal(size=patients)
    dies, leaves = rng.exponential(900 * np.exp(-risk)), rng.exponential(900, patients)
    return risk, Survival(np.ceil(np.minimum(dies, leaves)), dies <= leaves)


def predictions(
    rng: np.random.Generator, signal: np.ndarray, parts: dict[str, np.ndarray], ids: np.ndarray, target: Any
) -> Iterator[tuple[str, Any]]:
    """Content of a file of predictions; rounded, so that there are ties."""
    from panther.models.tasks import fit_task

    task = fit_task("cox" if signal.ndim == 1 else "cross-entropy", target)
    yield "about", json.dumps({"task": task.settings()})
    noisy = np.round(signal + rng.normal(0, 1, signal.shape), 2)
    arrays = (
        {"risk": noisy} if signal.ndim == 1 else {"probabilities": np.exp(noisy) / np.exp(noisy).sum(1, keepdims=True)}
    )
    for part, rows in parts.items():
        yield f"{part}/ids", ids[rows]
        for name, values in arrays.items():
            yield f"{part}/{name}", values[rows]


if __name__ == "__main__":
    main()

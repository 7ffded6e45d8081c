"""Ten given representations x three targets x 1,000 patients: how long the whole table takes, from files to intervals.

`python benchmarks/open_table.py` needs no arguments; `--quick` takes 100 patients and three representations.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from _harness import machine
from panther import run_study

TARGETS = {
    "classes": {"task": {"label": "subtype"}},
    "survival": {"task": {"time": "days", "event": "died"}},
    "value": {"task": {"value": "score"}},
}


def cohort(folder: Path, patients: int, rows: int, dim: int) -> tuple[Path, dict[str, str]]:
    """A table with three targets that depend on one direction, and vectors that know it more or less well."""
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=patients)
    ids = [f"P{i:04d}" for i in range(patients)]
    death, censoring = rng.exponential(1000 * np.exp(-hidden)), rng.exponential(2000, patients)
    table = pd.DataFrame({"slide_id": ids, "case_id": ids})
    table["subtype"] = np.where(hidden + rng.normal(size=patients) > 0, "high", "low")
    table["days"], table["died"] = np.minimum(death, censoring) + 1, (death <= censoring).astype(int)
    table["score"] = hidden + rng.normal(size=patients)
    table.to_csv(folder / "table.csv", index=False)
    given = {}
    for number in range(rows):
        direction = rng.normal(size=dim) / np.sqrt(dim)
        vectors = rng.normal(size=(patients, dim)) + (number + 1) * hidden[:, None] * direction
        frame = pd.DataFrame(vectors.astype("f4"), columns=[f"f{j}" for j in range(dim)])
        frame.assign(slide_id=ids).to_parquet(folder / f"given{number}.parquet")
        given[f"given{number}"] = str(folder / f"given{number}.parquet")
    return folder / "table.csv", given


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    patients, rows, dim = (100, 3, 64) if asked.quick else (1000, 10, 768)
    print(machine())
    print(f"{rows} given representations of {dim} numbers, {patients} patients, 5 folds, probe, 1,000 resamples\n")
    print("| target | seconds |\n|---|---|")
    total = 0.0
    with tempfile.TemporaryDirectory() as place:
        table, given = cohort(Path(place), patients, rows, dim)
        for name, task in TARGETS.items():
            study = {"name": name, "table": str(table), "embeddings": given, "heads": ["probe"], **task}
            start = time.perf_counter()
            run_study({**study, "splits": {"k": 5}}, Path(place) / name, workers=asked.workers)
            seconds = time.perf_counter() - start
            total += seconds
            print(f"| {name} | {seconds:.1f} |")
    print(f"| all | {total:.1f} |")


if __name__ == "__main__":
    main()

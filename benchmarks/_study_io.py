"""What a study reads of its features, and how long it takes: this version and, where a checkout of it is given, an older one, in turn."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import yaml

import _harness as harness

METHODS: list[Any] = [
    "panther",
    {"name": "panther", "label": "calibrated", "preset": "calibrated"},
    {"name": "panther", "label": "published", "preset": "published-code"},
    {"name": "panther", "label": "spherical", "covariance": "spherical"},
    "ot",
    "h2t",
    "protocounts",
    "deepsets",
]
COUNTED = (24, 60, 16)  # patients, patches, dimensions of the cohort on which reads are counted
COHORTS = {  # the same of those that are timed
    "small bags": (80, 125, 64),
    "slides": (20, 600, 1024),
    "many patches": (40, 3000, 1024),
}
LARGE = (24, 25_000, 1024)  # of that which does not fit into memory
ROUNDS = 3  # of those that are timed, median
PASSES = 5  # of K-means over the cohort: sampling, three of Lloyd, measuring

# A study in one process whose reads of rows are counted. Rows that lie in memory already are not read again: what counts is what was asked
# of the files, whether the disk or the page cache had it. Workers would read the same.
COUNTER = """
import json, sys
from dataclasses import dataclass, replace
from typing import Any
from panther.storage.readers import base
from panther.verbs.study import run_study

counts = {"opened": 0, "bytes": 0}

@dataclass(frozen=True)
class Counted:
    rows: Any
    shape = property(lambda self: tuple(self.rows.shape))
    dtype = property(lambda self: self.rows.dtype)
    def __getitem__(self, rows):
        block = self.rows[rows]
        counts["bytes"] += block.numel() * block.element_size()
        return block

def opened(content, plain=base._opened):
    bag = plain(content)
    counts["opened"] += 1
    return replace(bag, features=Counted(bag.features))

base._opened = opened
run_study(sys.argv[1], sys.argv[2])
print(json.dumps(counts))
"""


def generate(folder: Path, patients: int, patches: int, dim: int) -> int:
    """Write features and table; returns their bytes."""
    rng = np.random.default_rng(0)
    (folder / "features").mkdir(parents=True)
    centres = rng.normal(0, 1.5, (6, dim))
    shares = rng.dirichlet(np.ones(6), patients)
    high = shares[:, 0] > np.median(shares[:, 0])
    rows = ["case_id,slide_id,label"]
    for p in range(patients):
        x = centres[rng.choice(6, patches, p=shares[p])] + rng.normal(size=(patches, dim))
        np.save(folder / "features" / f"p{p:03d}.npy", x.astype("f4"))
        os.utime(folder / "features" / f"p{p:03d}.npy", (0, 0))
        rows.append(f"p{p:03d},p{p:03d},{'high' if high[p] else 'low'}")
    (folder / "table.csv").write_text("\n".join(rows) + "\n")
    return patients * patches * dim * 4


def write_study(folder: Path, methods: int, seeds: int) -> Path:
    """Write the study file of a grid."""
    study = {
        "name": "grid",
        "table": "table.csv",
        "features": {"generated": "features"},
        "task": {"label": "label"},
        "methods": METHODS[:methods],
        "heads": ["linear"],
        "seeds": list(range(seeds)),
        "splits": {"scheme": "kfold", "k": 5, "seed": 0},
        "bootstrap": 50,
    }
    (folder / "study.yaml").write_text(yaml.safe_dump(study))
    return folder / "study.yaml"


def run(source: Path, *arguments: str | Path, before: Sequence[str] = ()) -> str:
    """Output of a Python process that has that version of the package; ``before``: words before the command."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(source / "src")}
    done = subprocess.run(
        [*before, sys.executable, *map(str, arguments)], check=True, capture_output=True, env=environment
    )
    return done.stdout.decode()


@contextmanager
def limited(megabytes: int, rate: int | None, folder: Path) -> Iterator[list[str]]:
    """Words before a command that give it so much memory, the page cache of what it reads included, and so many MB/s of the folder's disk."""
    root = Path("/sys/fs/cgroup")
    old = (root / "memory").is_dir()  # the first version has a tree for each kind of limit
    disk = f"{os.major(folder.stat().st_dev)}:{os.minor(folder.stat().st_dev)}"
    memory = ("memory", "memory.limit_in_bytes" if old else "memory.max", str(megabytes << 20))
    reading = ("blkio", "blkio.throttle.read_bps_device", f"{disk} {(rate or 0) * 10**6}")
    reading = reading if old else ("", "io.max", f"{disk} rbps={(rate or 0) * 10**6}")
    limits = [memory] if rate is None else [memory, reading]
    groups = {(root / tree if old else root) / f"panther-{os.getpid()}" for tree, _, _ in limits}
    try:
        for tree, file, text in limits:
            group = (root / tree if old else root) / f"panther-{os.getpid()}"
            group.mkdir(exist_ok=True)
            (group / file).write_text(text)
        joined = "; ".join(f"echo $$ > {group}/cgroup.procs" for group in groups)
        yield ["sh", "-c", f'{joined}; exec "$@"', "sh"]
    finally:
        for group in filter(Path.is_dir, groups):
            while (group / "cgroup.procs").read_text():  # those that end last
                time.sleep(0.1)
            group.rmdir()


def reads_table(sources: dict[str, Path]) -> None:
    """Bytes and files against the size of the grid."""
    rows = []
    for methods, seeds in ((1, 1), (8, 1), (8, 3)):
        for name, source in sources.items():
            with tempfile.TemporaryDirectory() as temporary:
                folder = Path(temporary)
                size = generate(folder, *COUNTED)
                study = write_study(folder, methods, seeds)
                counts = json.loads(run(source, "-c", COUNTER, study, folder / "out").splitlines()[-1])
            read, opened = counts["bytes"] / size, counts["opened"] / COUNTED[0]
            rows.append([f"{methods} x 5 folds x {seeds}", name, f"{read:.1f}", f"{opened:.1f}"])
    harness.table(
        f"Reads of each bag (K-means: {PASSES} passes; aim: at most {PASSES + 2} cohorts, whatever the grid)",
        ["grid", "version", "times the cohort", "times opened"],
        rows,
    )


def seconds_table(sources: dict[str, Path]) -> None:
    """Seconds of 8 methods x 5 folds x 3 seeds on cohorts that lie in the page cache."""
    rows = []
    for cohort, shape in COHORTS.items():
        with tempfile.TemporaryDirectory(dir=".") as temporary:  # on a disk: /tmp may be memory
            folder = Path(temporary)
            size, study = generate(folder, *shape), write_study(folder, 8, 3)
            taken: dict[str, list[float]] = {name: [] for name in sources}
            for number, (name, source) in product(range(ROUNDS), sources.items()):  # in turns
                taken[name].append(_seconds(source, study, folder / f"{name}-{number}"))
            seconds = {name: statistics.median(values) for name, values in taken.items()}
            rows.append([f"{cohort}: {' x '.join(map(str, shape))}, {size / 1e6:.0f} MB", *_ratio(seconds)])
    harness.table("8 methods x 5 folds x 3 seeds, the whole command", ["cohort", *sources, "ratio"], rows)


def limited_table(sources: dict[str, Path], megabytes: int, rate: int | None) -> None:
    """The same on a cohort that does not fit into the memory given to it."""
    with tempfile.TemporaryDirectory(dir=".") as temporary:
        folder = Path(temporary)
        size, study = generate(folder, *LARGE), write_study(folder, 8, 3)
        os.sync()  # what is not on the disk yet cannot be forgotten
        seconds = {}
        for name, source in sources.items():
            for file in (folder / "features").iterdir():  # nothing of it is in the page cache at the start
                with file.open("rb") as handle:
                    os.posix_fadvise(handle.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            with limited(megabytes, rate, folder) as before:
                seconds[name] = _seconds(source, study, folder / name, before)
    disk = "the disk as it is" if rate is None else f"a disk of {rate} MB/s"
    title = f"The same, {' x '.join(map(str, LARGE))}, {size / 1e6:,.0f} MB, in {megabytes:,} MiB of memory, {disk}"
    harness.table(title, [*sources, "ratio"], [_ratio(seconds)])


def _seconds(source: Path, study: Path, output: Path, before: Sequence[str] = ()) -> float:
    command = ("-m", "panther", "run", study, "-o", output)
    return harness.timed(partial(run, source, *command, before=before))[0]


def _ratio(seconds: dict[str, float]) -> list[str]:
    ratio = f"{seconds['before'] / seconds['now']:.1f}x" if "before" in seconds else "-"
    return [*(f"{s:.0f}" for s in seconds.values()), ratio]


def main(before: Path | None, megabytes: int | None, rate: int | None) -> None:
    """Print the tables; with ``megabytes`` only that of little memory, and with ``rate`` of a slow disk."""
    sources = {"now": Path(__file__).resolve().parents[1]}
    if before is not None:
        sources = {"before": before.resolve(), **sources}
    if megabytes is not None:
        limited_table(sources, megabytes, rate)
        return
    reads_table(sources)
    seconds_table(sources)

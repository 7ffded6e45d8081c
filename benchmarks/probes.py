"""How long probes take, beside those of an earlier commit: CPU seconds of the search for a penalty, and how far their logits are apart.

    git worktree add --detach /tmp/before ff42090
    python benchmarks/probes.py --before /tmp/before

Each tree has a process of its own, with one thread; both fit the same generated patients in turn. Without `--before` this tree stands on both sides.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

HERE = Path(__file__).resolve().parents[1]
STATISTICS = 4  # of an embedding, where they are weighed against each other: nine weightings


class Case(NamedTuple):
    """What is fitted to whom."""

    kind: str  # classes, survival or value
    patients: int
    numbers: int
    weighed: bool
    rounds: int = 3


CASES = (
    *(Case(kind, 640, 768, False) for kind in ("classes", "survival", "value")),
    *(Case(kind, n, 21_768, True) for n in (48, 200) for kind in ("classes", "survival", "value")),
    Case("classes", 1000, 21_768, True, rounds=1),
)
QUICK = tuple(Case(kind, 30, 40, weighed, 1) for kind in ("classes", "survival", "value") for weighed in (False, True))


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, default=HERE, help="checkout of the earlier commit")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.serve:
        _serve()
        return
    from _harness import machine

    print(machine())
    print("Seconds of CPU time of one fit with its inner cross-validation, medians; one thread.\n")
    print("| probe | patients | numbers | weightings | before | now | now / before | largest difference of logits |")
    print("|---|---|---|---|---|---|---|---|")
    with _server(asked.before) as before, _server(HERE) as now:
        for case in QUICK if asked.quick else CASES:
            print(_row(case, before, now), flush=True)


def _server(tree: Path) -> "subprocess.Popen[str]":
    """A process that fits what it is asked for, with the package of a checkout."""
    source = tree.resolve() / "src"
    if not (source / "panther").is_dir():
        sys.exit(f"{tree}: holds no src/panther; give a checkout of this repository, e.g. of `git worktree add`.")
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return subprocess.Popen(
        [sys.executable, __file__, "--serve"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **one, "PYTHONPATH": str(source)},
    )


def _row(case: Case, *sides: "subprocess.Popen[str]") -> str:
    """Both sides in turn, as often as the case says, after a round that does not count where there are several."""
    seconds: list[list[float]] = [[] for _ in sides]
    logits: list[np.ndarray] = [np.zeros(0) for _ in sides]
    for number in range(case.rounds + (case.rounds > 1)):
        for side, server in enumerate(sides):
            found = _ask(server, case)
            logits[side] = np.array(found["logits"])
            if number >= (case.rounds > 1):
                seconds[side].append(found["seconds"])
    before, now = map(statistics.median, seconds)
    apart = np.abs(logits[0] - logits[1]).max() / np.abs(logits[0]).max()
    weightings = 1 + 2 * STATISTICS if case.weighed else 1
    about = f"{case.kind} | {case.patients:,} | {case.numbers:,} | {weightings}"
    return f"| {about} | {before:.3f} | {now:.3f} | {now / before:.2f} | {apart:.1e} |"


def _ask(server: "subprocess.Popen[str]", case: Case) -> dict[str, Any]:
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(json.dumps(case) + "\n")
    server.stdin.flush()
    answer: dict[str, Any] = json.loads(server.stdout.readline())
    return answer


def _serve() -> None:
    """Answer each case on standard input with its seconds and its logits."""
    from panther.models import probes

    for line in sys.stdin:
        case = Case(*json.loads(line))
        x, targets = _patients(case)
        names = np.repeat([f"statistic {i}" for i in range(STATISTICS)], case.numbers // STATISTICS)
        fit = {"classes": probes.fit_logistic, "survival": probes.fit_cox, "value": probes.fit_ridge}[case.kind]
        start = time.process_time()
        probe = fit(x, *targets, blocks=names if case.weighed else None)
        seconds = time.process_time() - start
        print(json.dumps({"seconds": seconds, "logits": probe.logits(x).ravel().tolist()}), flush=True)


def _patients(case: Case) -> tuple[np.ndarray, tuple[Any, ...]]:
    """Vectors that know one direction, and a target that depends on it; the same in every process."""
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=case.patients)
    x = rng.normal(size=(case.patients, case.numbers))
    x += 3 * hidden[:, None] * rng.normal(size=case.numbers) / np.sqrt(case.numbers)
    death, censoring = rng.exponential(np.exp(-hidden)), rng.exponential(2, case.patients)
    noisy = hidden + rng.normal(size=case.patients)
    targets = {
        "classes": ((noisy > 0).astype(np.int64), 2),
        "survival": (np.minimum(death, censoring), death <= censoring),
        "value": (noisy,),
    }
    return x, targets[case.kind]


if __name__ == "__main__":
    main()

"""All ten methods with all their heads on 200 generated patients: one command to the table, killed and resumed to the same digits."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import pytest
import torch
import yaml

from cli.running import Runner
from panther.aggregators import aggregators
from panther.mil import networks
from panther.study.file import Study
from study.generated import generate

SMALL = {  # widths that train in a moment
    "abmil": {"hidden": 8, "attention": 4},
    "transmil": {"hidden": 8, "heads": 2, "landmarks": 4},
    "dsmil": {"hidden": 8, "attention": 4},
    "attnmisl": {"hidden": 8, "attention": 4},
    "ilra": {"hidden": 8, "heads": 2, "latents": 2},
}
STUDY = {
    "name": "everything",
    "table": "table.csv",
    "features": {"npy": "features"},
    "task": {"label": "subtype"},
    "splits": {"scheme": "holdout", "shares": [0.5, 0.1, 0.4], "seed": 0},
    "methods": [*aggregators.names(), *({"name": name, "label": name, **SMALL[name]} for name in networks.names())],
    "heads": ["linear", "paper-classification", "probe"],
    "n_prototypes": [4],
    "prototypes": {"restarts": 1, "passes": 1},
    "training": {"epochs": 2},
    "mil_training": {"epochs": 2, "batch_size": 20, "accumulate": 1},
    "bootstrap": 20,
}
TABLES = ("metrics.csv", "predictions.csv", "summary.csv", "comparisons.csv", "table.md")


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Small tensors on busy cores: one thread is faster than two that wait for each other."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def finished(folder: Path) -> int:
    return len(list((folder / "cache").glob("model-*.npz")))


def kill_when(reached: Callable[[], bool], arguments: list[str]) -> None:
    """Start the study and kill it, as a scheduler or the kernel would, as soon as it got that far."""
    process = subprocess.Popen(
        [sys.executable, "-m", "panther", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    while not reached():
        assert process.poll() is None, "the study ended before it could be killed"
        time.sleep(0.002)
    process.kill()
    assert process.wait() == -9


@pytest.mark.slow  # a minute; test_experiment kills a smaller study in CI
def test_all_methods_and_heads_come_to_one_table_and_kills_do_not_change_a_digit(tmp_path, monkeypatch, capsys):
    generate(tmp_path, patients=200, dim=8, patches=10)
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(STUDY))
    command = ["run", str(tmp_path / "study.yaml"), "-j", "1", "-o"]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    run = Runner(monkeypatch, capsys)
    run(*command, whole)

    cells = {(c.method.title, c.head.title) for c in Study(**STUDY).cells()}
    assert {method for method, _ in cells} == {*aggregators.names(), *networks.names()}
    # only four have something to be structured by, and networks bring their own head
    assert len(cells) == 4 * 3 + 5 * 2 + 5
    predictions = pd.read_csv(whole / "predictions.csv")
    tested = predictions.groupby(["method", "head"])["patient"].nunique()
    assert set(tested.index) == cells
    assert set(tested) == {80}
    assert (whole / "table.md").read_text().count("\n| ") == len(cells)

    unsupervised = sum(head != "own" for _, head in cells)
    kill_when(lambda: finished(killed) >= 3, [*command, str(killed)])
    kill_when(lambda: finished(killed) > unsupervised, [*command, str(killed)])
    assert unsupervised < finished(killed) < finished(whole)
    run(*command, killed)
    for name in TABLES:
        assert (whole / name).read_bytes() == (killed / name).read_bytes(), name

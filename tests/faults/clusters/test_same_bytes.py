"""`slides`, `prototypes`, `embed` and `run` write the same bytes in one process, with four workers, and on a Dask cluster."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cli.running import Runner, make_cohort
from clusters.conftest import dask_workers
from slides.phantoms import tissue_slide, write_pyramid

STUDY = """name: s
table: cohort.csv
features: {own: feats}
task: {label: subtype}
heads: [probe, linear]
methods: [panther, deepsets]
n_prototypes: [2]
splits: {scheme: kfold, k: 2}
bootstrap: 20
training: {epochs: 2}
"""
# what is worked on -> words of the command, and what it writes
COMMANDS = {
    "slides": (
        ["slides", "images", "--mpp", "1", "--patch-size", "64", "--encoder", "lite0", "--device", "cpu"],
        "job",
    ),
    "prototypes": (["prototypes", "feats", "-C", "3"], "q.safetensors"),
    "embed": (["embed", "feats", "-p", "p.npy"], "s.h5ad"),
    "run": (["run", "s.yaml"], "study"),
}
WAYS = {"one": [["-j", "1"]], "four": [["-j", "4"]]}
OWN = ("cache", ".job")  # how the work went, not what came of it


@pytest.fixture
def world(tmp_path: Path) -> Path:
    make_cohort(tmp_path)
    (tmp_path / "images").mkdir()
    image, _ = tissue_slide()
    for number in range(4):
        write_pyramid(tmp_path / "images" / f"T{number}.tif", np.roll(image, 40 * number, 0), 0.5, levels=1)
    names = [f"00{number}" for number in range(6)]
    table = pd.DataFrame({"slide_id": names, "case_id": names, "subtype": ["a", "b"] * 3})
    table.to_csv(tmp_path / "cohort.csv", index=False)
    (tmp_path / "s.yaml").write_text(STUDY)
    return tmp_path


def contents(place: Path) -> dict[str, bytes]:
    """All files of an output."""
    if place.is_file():
        return {place.suffix: place.read_bytes()}
    return {str(path.relative_to(place)): path.read_bytes() for path in sorted(files(place)) if path.is_file()}


def files(place: Path) -> Iterator[Path]:
    for path in place.rglob("*"):
        parts = path.relative_to(place).parts
        if not any(part in OWN or part.startswith(".") for part in parts):
            yield path


def differing(one: dict[str, bytes], other: dict[str, bytes]) -> list[str]:
    return sorted(name for name in {*one, *other} if one.get(name) != other.get(name))


@pytest.mark.parametrize("command", ["prototypes", "embed"])
def test_a_cluster_of_two_workers(cluster, world, monkeypatch, capsys, command):
    monkeypatch.chdir(world)
    words, output = COMMANDS[command]
    for way, options in (("one", ["-j", 1]), ("dask", ["-j", cluster.scheduler_address])):
        Path(way).mkdir()
        Runner(monkeypatch, capsys)(*words, "-o", f"{way}/{output}", *options)
    assert not differing(contents(Path("one", output)), contents(Path("dask", output)))


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_every_way(world, command):
    words, output = COMMANDS[command]
    actual = {}
    with dask_workers(3) as three:
        for way, processes in {**WAYS, "dask": [["-j", three.scheduler_address]]}.items():
            (world / way).mkdir()
            line = [sys.executable, "-m", "panther", *words, "-o", f"{way}/{output}"]
            started = [
                subprocess.Popen(
                    [*line, *options], cwd=world, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
                )
                for options in processes
            ]
            printed = [process.communicate(timeout=600)[0] for process in started]
            assert [process.returncode for process in started] == [0] * len(started), printed
            actual[way] = contents(world / way / output)
    assert actual["one"]
    for way in ("four", "dask"):
        assert not differing(actual["one"], actual[way]), way

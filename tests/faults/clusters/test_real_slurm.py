"""Jobs of a real SLURM on this machine: arrays, Dask's workers, and what SLURM does to jobs; each gives the bytes of one process."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusters.slurm_lab import Slurm, missing
from clusters.test_templates import TEMPLATES, commands, filled, images
from faults.lab import SOURCE, make_cohort, until
from faults.slow_slides import SLIDES, path_to_encoder, write_slow_slides

pytestmark = pytest.mark.slow
__all__ = ["commands", "images"]

EMBED = ("embed", "features", "-p", "p.npy", "--device", "cpu", "-j", "1", "-o")
ARRAY = """#!/bin/bash
#SBATCH --array=0-1 --requeue --open-mode=append
[ "${SLURM_ARRAY_TASK_ID}" = 0 ] || export PAUSE=0.2
exec panther """


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    if reason := missing():
        pytest.skip(reason)
    lab = Slurm(tmp_path_factory.mktemp("slurm"))
    try:
        lab.start()
        yield lab
        lab.stop()
    finally:
        lab.kill()


@pytest.fixture
def panther(slurm: Slurm, commands: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "Panther":
    """The command `panther`, here and in jobs, which get the environment of whoever asks for them."""
    monkeypatch.setenv("PATH", f"{commands['PATH']}{os.pathsep}/usr/sbin")
    monkeypatch.setenv("SLURM_CONF", str(slurm.folder / "slurm.conf"))
    monkeypatch.setenv("PYTHONPATH", str(SOURCE))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("DASK_JOBQUEUE__SLURM__INTERFACE", "lo")
    return Panther(tmp_path)


class Panther:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *words: object, before: tuple[str, ...] = ()) -> str:
        line = [*before, "panther", *map(str, words)]
        done = subprocess.run(line, cwd=self.folder, capture_output=True, text=True, timeout=900, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr


def features(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.h5")}


def test_the_template_of_an_array_goes_from_slides_to_embeddings(slurm, panther, images):
    script = filled("array.sbatch", images, SLIDES="images", OUTPUT="out", ENCODER="lite0")
    less = ("--array=3-4", "--cpus-per-task=1", "--mem=1G")
    first = slurm.run("sbatch", "--parsable", *less, script, "slides", cwd=images)
    second = slurm.run(
        "sbatch", "--parsable", *less, "--array=3", f"--dependency=afterany:{first}", script, "embed", cwd=images
    )
    assert slurm.until_ended(second) == {"COMPLETED"}, slurm.logs()
    alone = ("slides", "images", "-o", "alone/job", "--encoder", "lite0", "-j", 1)
    panther(*alone)
    names = features(images / "alone" / "job")
    assert names
    assert features(images / "out" / "job") == names
    bags = "out/job/20x_256px_0px_overlap/features_lite0"
    panther("prototypes", bags, "-C", 16, "-o", "alone/prototypes.safetensors", "-j", 1)
    panther("embed", bags, "-p", "out/prototypes.safetensors", "-o", "alone/slides.h5ad", "-j", 1)
    for name in ("prototypes.safetensors", "slides.h5ad"):
        assert (images / "out" / name).read_bytes() == (images / "alone" / name).read_bytes()


@pytest.mark.parametrize("jobs", ["min_jobs: 2\nmax_jobs: 2", "max_jobs: 2"], ids=["fixed", "adapting"])
def test_dask_s_workers_are_replaced_when_their_lifetime_ends_and_may_use_the_memory_of_their_job(
    slurm, panther, tmp_path, jobs
):
    """A Dask worker needs more than these 100 MB by itself: one that Dask looks after would be stopped before its first slide."""
    for path in make_cohort(tmp_path / "made", 8).iterdir():
        path.rename(tmp_path / path.name)
    slow = ("--set", "steps=400")
    text = (
        f"cores: 1\nmemory: 100MB\nwalltime: 00:20:00\nlifetime: 6s\nstagger: 1s\ninterface: lo\nlogs: logs\n{jobs}\n"
    )
    (tmp_path / "options.yaml").write_text(text)
    panther(*EMBED, "one.npz", *slow)
    panther(*EMBED, "slurm.npz", *slow, "-j", "slurm:options.yaml")
    assert (tmp_path / "slurm.npz").read_bytes() == (tmp_path / "one.npz").read_bytes()


def test_the_template_with_workers_of_dask_jobqueue(slurm, panther, tmp_path):
    for path in make_cohort(tmp_path / "made", 6).iterdir():
        path.rename(tmp_path / path.name)
    job = '{"cores": 1, "memory": "500MB", "walltime": "00:10:00"}'
    script = filled("slurm_workers.py", tmp_path, PARTITION='"cpu"', JOB=job, JOBS="2")
    panther(*EMBED, "one.npz")
    panther(*EMBED, "slurm.npz", before=(sys.executable, str(script)))
    assert (tmp_path / "slurm.npz").read_bytes() == (tmp_path / "one.npz").read_bytes()
    assert (TEMPLATES / script.name).exists()


@pytest.mark.parametrize("fault", ["requeue", "cancel", "walltime"])
def test_an_array_of_parts_of_which_slurm_ends_one(slurm, panther, tmp_path, monkeypatch, fault):
    write_slow_slides(tmp_path)
    monkeypatch.setenv("PYTHONPATH", path_to_encoder(tmp_path)["PYTHONPATH"])
    monkeypatch.setenv("PAUSE", "0")
    panther(*SLIDES, "-o", "alone")
    monkeypatch.setenv("PAUSE", "100")  # of the first task: it is met in its first slide
    (tmp_path / "array.sh").write_text(
        ARRAY + " ".join(map(str, (*SLIDES, "-o", "job", "--part"))) + " $((SLURM_ARRAY_TASK_ID + 1))/2\n"
    )
    limit = ("--time=1",) if fault == "walltime" else ()
    job = slurm.run("sbatch", "--parsable", *limit, "array.sh", cwd=tmp_path)
    until(lambda: any((tmp_path / "job").rglob("*_patches.h5")), "patches")
    said = tmp_path / f"slurm-{job}_0.out"
    if fault == "requeue":
        (tmp_path / "slowly.py").write_text((tmp_path / "slowly.py").read_text().replace("PAUSE", "NO_PAUSE"))
        slurm.run("scontrol", "requeue", f"{job}_0")
        assert slurm.until_ended(job) == {"COMPLETED"}, said.read_text()
    else:
        if fault == "cancel":
            until(lambda: slurm.state(f"{job}_1") == {"COMPLETED"}, "the other task")
            slurm.run("scancel", f"{job}_0")
        ended = slurm.until_ended(job)
        assert ended <= {"COMPLETED", "CANCELLED", "TIMEOUT"}, ended
        assert "panther: stopped. Type the same command again to go on." in said.read_text()
        monkeypatch.setenv("PAUSE", "0")
        panther(*SLIDES, "-o", "job")
    assert features(tmp_path / "job") == features(tmp_path / "alone")
    assert (tmp_path / "job" / "summary.csv").read_text().count(",done,") == 4

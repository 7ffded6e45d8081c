"""SLURM's jobs: what is asked for, what is refused, and a whole run with an sbatch that starts its jobs right here."""

import os
import stat
from pathlib import Path

import numpy as np
import pytest

from cli.running import Runner
from panther.cluster import SlurmOptions, slurm_cluster
from panther.engine import open_executor
from panther.errors import InputError

LEAST = {"cores": 2, "memory": "4GB", "walltime": "01:00:00"}
SBATCH = """#!/bin/bash
folder=$(dirname "$0")
if [ "$1" = --test-only ]; then
  cat > "$folder/asked.sh"
  if [ -e "$folder/refuse" ]; then echo "sbatch: error: invalid partition specified: moon" >&2; exit 1; fi
  exit 0
fi
cp "$1" "$folder/job.$$.sh"
setsid bash "$folder/job.$$.sh" > "$folder/job.$$.log" 2>&1 < /dev/null &
echo "Submitted batch job $!"
"""
SCANCEL = '#!/bin/bash\nkill -- "-$1"\n'


@pytest.fixture
def slurm(tmp_path, monkeypatch) -> Path:
    """Commands of a SLURM whose only node is this machine."""
    folder = tmp_path / "slurm"
    folder.mkdir()
    for name, text in (("sbatch", SBATCH), ("scancel", SCANCEL)):
        (folder / name).write_text(text)
        (folder / name).chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


def test_a_job_requests_the_resources_of_the_file(slurm, tmp_path):
    pytest.importorskip("dask_jobqueue")
    file = tmp_path / "options.yaml"
    file.write_text(
        "cores: 8\nmemory: 32GB\nwalltime: 12:00:00\npartition: gpu\naccount: lab\ngpus: 1\nmax_jobs: 3\n"
        "directives: [--qos=long]\nsetup: [module load cuda]\nlogs: /scratch/logs\n"
    )
    options = SlurmOptions.read(file)
    with slurm_cluster(options):
        pass
    lines = (slurm / "asked.sh").read_text().splitlines()
    for line in ("-p gpu", "-A lab", "--cpus-per-task=8", "-t 12:00:00", "--gres=gpu:1", "--qos=long", "-J panther"):
        assert f"#SBATCH {line}" in lines
    assert "module load cuda" in lines
    worker = next(line for line in lines if "dask_worker" in line)
    assert "--nthreads 8" in worker
    assert "--resources GPU=1" in worker
    assert (
        "--lifetime 42900s --lifetime-stagger 150s" in worker
    )  # ends in order, five minutes before it would be killed


@pytest.mark.parametrize(
    "change",
    [
        *({"corse": 2}, {"memory": None}, {"memory": "lots"}, {"walltime": 60}, {"walltime": "moon"}, {"cores": 0}),
        *({"cores": "two"}, {"min_jobs": 5, "max_jobs": 2}),
    ],
)
def test_options_that_make_no_sense_are_named(change):
    with pytest.raises(InputError, match=f"options.yaml: {next(iter(change))}: "):
        SlurmOptions.parse({**LEAST, **change}, "options.yaml")
    with pytest.raises(InputError, match="walltime: "):
        SlurmOptions.parse({"cores": 1, "memory": "1GB"})


def test_the_command_needs_a_file_of_options_and_an_sbatch(tmp_path, monkeypatch):
    pytest.importorskip("dask_jobqueue")
    with pytest.raises(InputError, match=r"none\.yaml"), open_executor(f"slurm:{tmp_path / 'none.yaml'}"):
        pass
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="sbatch"), slurm_cluster(SlurmOptions.parse(LEAST)):
        pass


def test_jobs_that_slurm_refuses_are_reported_before_the_work(slurm):
    pytest.importorskip("dask_jobqueue")
    (slurm / "refuse").touch()
    with pytest.raises(InputError, match="invalid partition specified: moon"), slurm_cluster(SlurmOptions.parse(LEAST)):
        pass


@pytest.mark.slow
@pytest.mark.parametrize("jobs", ["min_jobs: 2\nmax_jobs: 2", "max_jobs: 2"], ids=["fixed", "adapting"])
def test_embeddings_by_slurm_s_jobs_have_the_bytes_of_one_process(slurm, tmp_path, monkeypatch, capsys, jobs):
    monkeypatch.chdir(tmp_path)
    panther = Runner(monkeypatch, capsys)
    rng = np.random.default_rng(0)
    Path("features").mkdir()
    for i in range(12):
        np.save(f"features/S{i}.npy", rng.normal(size=(40 + i, 4)).astype(np.float32))
    Path("options.yaml").write_text(f"cores: 1\nmemory: 1GB\nwalltime: 01:00:00\n{jobs}\n")
    panther("prototypes", "features", "-C", 3, "-o", "p.safetensors")
    panther("embed", "features", "-p", "p.safetensors", "-o", "one.h5ad")
    panther("embed", "features", "-p", "p.safetensors", "-o", "slurm.h5ad", "-j", "slurm:options.yaml")
    assert Path("one.h5ad").read_bytes() == Path("slurm.h5ad").read_bytes()
    assert len(list(slurm.glob("job.*.sh"))) >= 1

"""The templates of docs/templates, filled in at three lines: their syntax, and what can be run here is run."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from panther.cluster import SlurmOptions
from slides.phantoms import tissue_slide, write_pyramid

TEMPLATES = Path(__file__).parents[3] / "docs" / "templates"


def filled(name: str, folder: Path, **values: str) -> Path:
    """The template with other values in the lines to fill in, in a folder."""
    text = (TEMPLATES / name).read_text()
    for key, value in values.items():
        text, count = re.subn(rf"^{key}\s*=.*$", f"{key}={value}", text, flags=re.M)
        assert count == 1, key
    (folder / name).write_text(text)
    return folder / name


@pytest.fixture
def images(tmp_path: Path) -> Path:
    (tmp_path / "images").mkdir()
    image, _ = tissue_slide()
    for number in range(2):
        large = np.tile(np.roll(image, 60 * number, 0), (2, 2, 1))  # more patches than the 16 prototypes
        write_pyramid(tmp_path / "images" / f"T{number}.tif", large, 0.5, levels=1)
    return tmp_path


@pytest.fixture
def commands(tmp_path: Path) -> dict[str, str]:
    """An environment in which the command `panther` is this package's."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "panther").write_text(f'#!/bin/bash\nexec "{sys.executable}" -m panther "$@"\n')
    (folder / "panther").chmod(0o700)
    return {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


def test_the_array_is_a_script_of_the_shell_and_the_others_are_python_and_yaml():
    assert subprocess.run(["bash", "-n", TEMPLATES / "array.sbatch"], check=False).returncode == 0
    compile((TEMPLATES / "slurm_workers.py").read_text(), "slurm_workers.py", "exec")
    options = SlurmOptions.parse(yaml.safe_load((TEMPLATES / "slurm.yaml").read_text()))
    assert (options.partition, options.cores, options.max_jobs) == ("cpu", 16, 20)
    optional = re.findall(r"^# (\w+: .*?)(?:\s{2,}#.*)?$", (TEMPLATES / "slurm.yaml").read_text(), re.M)
    assert len(optional) == 8  # and all of them are options that there are
    SlurmOptions.parse({"cores": 1, "memory": "1GB", "walltime": "04:00:00", **yaml.safe_load("\n".join(optional))})


@pytest.mark.slow
def test_the_array_goes_from_slides_to_embeddings(images, commands):
    script = filled("array.sbatch", images, SLIDES="images", OUTPUT="out", ENCODER="lite0")
    for stage, count in (("slides", 2), ("embed", 1)):
        tasks = [
            {
                **commands,
                "SLURM_ARRAY_TASK_ID": str(5 + task),
                "SLURM_ARRAY_TASK_MIN": "5",
                "SLURM_ARRAY_TASK_COUNT": str(count),
            }
            for task in range(count)
        ]
        jobs = [subprocess.Popen(["bash", script, stage], cwd=images, env=environment) for environment in tasks]
        assert [job.wait(900) for job in jobs] == [0] * count
    assert (images / "out" / "slides.h5ad").exists()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("snakemake") is None, reason="Snakemake is not installed")
def test_snakemake_goes_from_slides_to_embeddings_with_two_jobs(images, commands):
    shutil.copy(TEMPLATES / "Snakefile", images)
    arguments = ["slides=images", "output=out", "encoder=lite0", "parts=2"]
    line = ["snakemake", "--cores", "2", "--set-threads", "slides=1", "--config", *arguments]
    done = subprocess.run(line, cwd=images, env=commands, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0, done.stderr
    assert (images / "out" / "slides.h5ad").exists()

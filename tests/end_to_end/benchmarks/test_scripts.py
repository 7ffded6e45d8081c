"""The scripts behind the figures still run; what they print with `--quick` means nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[3] / "benchmarks"
QUICK = sorted(path.name for path in FOLDER.glob("[a-z]*.py") if '"--quick"' in path.read_text())


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in QUICK if name != "gpu.py"])
def test_a_script_runs(name, tmp_path):
    environment = os.environ | {"PYTHONPATH": str(FOLDER.parent / "src")}
    command = [sys.executable, str(FOLDER / name), "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "|" in done.stdout  # a table

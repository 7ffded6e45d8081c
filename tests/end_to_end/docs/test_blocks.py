"""Every block of the README and of the documentation runs as written; exceptions are listed with the reason."""

import contextlib
import itertools
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
import yaml

from docs.blocks import Block, arguments, blocks
from docs.world import ACROSS, DOWN, SLIDES, STUDY, make_world
from hostile.judging import run_here
from panther import load_prototypes, open_bag
from panther.study.file import Study

ROOT = Path(__file__).resolve().parents[3]
ELSEWHERE = {"tutorials/features.md", "tutorials/slides.md", "tutorials/survival.md"}  # run by test_tutorials.py
PAGES = [
    ROOT / "README.md",
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if str(page.relative_to(ROOT / "docs")) not in ELSEWHERE),
]

# CI runs these; `make slow` runs all: twenty pages of commands take minutes.
IN_CI = {"README.md", "docs/how-to/feature-files.md", "docs/how-to/studies.md"}

# What a block says -> why it is not run here. A block that matches none of these, and does not run, fails.
NOT_RUN = {
    r"^make (demo|test)": "the whole suite, or minutes of work that have a test of their own",
    r"^pip install": "needs a network",
    r"^dask (scheduler|worker)|tcp://HOST": "needs more than one machine",
    r"^panther slides .*--encoder uni": "needs weights behind a permission",
    r"panther [a-z-]+ stores/": "needs stores of wsidata; tests/unit/storage/test_wsidata.py runs it",
    r"^panther mcp ": "waits for a client; tests/unit/cli/test_mcp.py is one",
    r"--push-to|^uvx|^pipx|^docker build|^apptainer": "needs a network or Docker",
    r"^panther share|library/|dicom_slides|--regions drawn": "needs files of other tests, which run it",
    r"^panther view ": "waits for a browser; tests/unit/viewer does it",
    r"median\.py$|\.register\(": "a plug-in; tests/end_to_end/test_plugins.py runs it",
}
# Blocks that are no programs.
NOT_CODE = {
    r"^@inproceedings": "a reference",
    r"mcpServers": "the configuration of a client",
    r"getAnnotationObjects": "a script of QuPath",
    r"^job/\n": "folders of a job",
    r"^slide_id,x,y,label\n": "a table",
    r"^--slide-mpp": "options of a command that stands above",
    r"^tissue  .* done, ": "what a command prints",
    r"dss_censorship \(1 = censored\): ": "what a command prints",
}
PLACEHOLDERS = {"SLIDES...": "SLIDES"}  # one or more


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made once; every page gets a copy."""
    return make_world(tmp_path_factory.mktemp("docs") / "world")


def _in_ci_or_slow(page: Path) -> Any:
    name = str(page.relative_to(ROOT))
    return pytest.param(page, id=name, marks=() if name in IN_CI else pytest.mark.slow)


@pytest.mark.parametrize("page", [_in_ci_or_slow(page) for page in PAGES])
def test_the_blocks_of_a_page_run_as_they_are_written(page, world, tmp_path):
    for number, found in enumerate(read_together(blocks(page, ROOT))):
        folder = shutil.copytree(world, tmp_path / f"world{number}")
        names = known_names(folder)
        for block in found:
            RUN[block.kind](block, folder, names)
    plt.close("all")


def read_together(found: list[Block]) -> list[list[Block]]:
    """Blocks of a page run in order; each section of the README starts anew."""
    if not found or found[0].page != "README.md":
        return [found] if found else []
    return [list(group) for _, group in itertools.groupby(found, key=lambda block: block.section)]


def known_names(folder: Path) -> dict[str, Any]:
    """Names that Python blocks use without defining them."""
    bags = [np.asarray(open_bag(folder / "features" / f"{slide}.h5").features[:]) for slide in SLIDES]
    return {
        "train_bags": bags[:7],
        "test_bags": bags[7:],
        "labels": np.arange(7) % 2,
        "patients": [f"patient {number // 2}" for number in range(7)],
        "bag": torch.randn(30, 1024, generator=torch.Generator().manual_seed(0)),
        "prototypes": load_prototypes(folder / "protos.safetensors"),
        "prototype": np.arange(ACROSS * DOWN) % 4,
    }


def run_shell(block: Block, folder: Path, names: Mapping[str, Any]) -> None:
    for command in block.commands():
        if reason(command, NOT_RUN):
            continue
        if command.startswith("panther study new"):
            (folder / f"{arguments(command)[3]}.yaml").unlink(missing_ok=True)  # a reader begins without one
        words = [PLACEHOLDERS.get(word, word) for word in arguments(command)]
        output = folder / words.pop() if ">" in words and words[-2] == ">" else None
        words = [word for word in words if word != ">"]
        assert words[0] == "panther", f"{block}: {command!r} is neither run nor listed as not run"
        done = run_here(words[1:], folder)
        assert done.code == 0, f"{block}: {done.text}"
        assert "Traceback" not in done.err
        if output is not None:
            output.write_text(done.out)
        if words[1:3] == ["study", "new"]:  # the reader fills in the paths; here with a study of seconds
            (folder / f"{words[3]}.yaml").write_text(yaml.safe_dump(STUDY | {"name": words[3]}))


def run_python(block: Block, folder: Path, names: dict[str, Any]) -> None:
    if reason(block.code, NOT_RUN):
        return
    with contextlib.chdir(folder):
        exec(compile(block.code, str(block), "exec"), names)


def check_yaml(block: Block, folder: Path, names: Mapping[str, Any]) -> None:
    content = yaml.safe_load(block.code)
    if "task" in content:
        Study.model_validate(content)


def check_text(block: Block, folder: Path, names: Mapping[str, Any]) -> None:
    assert reason(block.code, NOT_CODE), f"{block}: is neither a program nor listed as none:\n{block.code}"


RUN = {"shell": run_shell, "python": run_python, "yaml": check_yaml, "text": check_text}


def reason(text: str, table: Mapping[str, str]) -> str | None:
    """Why a text is not run, None where nothing says so."""
    return next((why for pattern, why in table.items() if re.search(pattern, text)), None)


@pytest.mark.parametrize("pattern", [*NOT_RUN, *NOT_CODE])
def test_every_exemption_is_used(pattern):
    texts = [text for page in PAGES for block in blocks(page, ROOT) for text in (block.code, *block.commands())]
    assert any(re.search(pattern, text) for text in texts)


def test_blocks_are_found_in_fences_and_by_indentation(tmp_path):
    shell = "# A\n\n    panther inspect x  # c\n    panther embed x \\\n        -o y\n\n- list\n    - no block\n"
    text = f"{shell}\n```python\nx = 1\n```\n\n    a tree/\n"
    (tmp_path / "page.md").write_text(text)
    found = blocks(tmp_path / "page.md", tmp_path)
    assert [(block.kind, block.line) for block in found] == [("shell", 3), ("python", 10), ("text", 14)]
    assert found[0].commands() == ["panther inspect x  # c", "panther embed x  -o y"]
    assert arguments(found[0].commands()[0]) == ["panther", "inspect", "x"]

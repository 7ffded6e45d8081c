"""What a release says about itself agrees: version, dependencies of conda, extras that pages and doctor name."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from panther.verbs.start import PACKAGES
from panther.version import __version__

ROOT = Path(__file__).resolve().parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONDA = {"matplotlib-base": "matplotlib", "pytorch": "torch", "python-xxhash": "xxhash"}


def test_every_file_names_the_version_of_the_package():
    recipe = yaml.safe_load((ROOT / "packaging/conda/recipe.yaml").read_text())
    changelog = re.search(r"^## (\S+) - (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {recipe["context"]["version"], changelog[1], str(citation["version"])} == {__version__}
    assert str(citation["date-released"]) == changelog[2]


def test_conda_requires_what_pip_requires():
    recipe = yaml.safe_load((ROOT / "packaging/conda/recipe.yaml").read_text())
    pairs = (line.split(" ", 1) for line in recipe["requirements"]["run"])
    conda = {CONDA.get(name, name) + bound for name, bound in pairs}
    assert conda == {*PROJECT["dependencies"], "python" + PROJECT["requires-python"]}


def test_pages_and_doctor_name_extras_that_exist():
    extras = PROJECT["optional-dependencies"]
    files = [
        ROOT / "README.md",
        ROOT / "packaging/Dockerfile",
        ROOT / "packaging/panther.def",
        *(ROOT / "docs").rglob("*.md"),
    ]
    text = "\n".join([*(file.read_text() for file in files), *PACKAGES.values()])
    named = re.findall(r"(?:panther-wsi|[\"'/ ]\.|source)\[([a-z,-]+)\]", text)
    assert named
    assert {name for group in named for name in group.split(",")} <= set(extras)


@pytest.mark.slow  # a docstring may change between releases; `make format` writes the skill again
def test_the_skill_is_as_generated_from_the_commands():
    done = subprocess.run([sys.executable, ROOT / "docs/skill.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

"""A fresh copy of the lab for every test that damages it."""

import shutil
from pathlib import Path

import pytest

from hostile.lab import make_lab


@pytest.fixture(scope="session")
def sound_lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cohort as it should be; nobody writes to it."""
    return make_lab(tmp_path_factory.mktemp("hostile") / "lab")


@pytest.fixture
def lab(sound_lab: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    shutil.copytree(sound_lab, tmp_path / "lab", symlinks=True)
    return tmp_path / "lab"

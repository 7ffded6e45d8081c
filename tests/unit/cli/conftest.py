"""The command in this process, and a small cohort to run it on."""

import pytest
from running import Runner, make_cohort


@pytest.fixture
def panther(monkeypatch, capsys):
    return Runner(monkeypatch, capsys)


@pytest.fixture
def cohort(tmp_path, monkeypatch):
    """Six slides, in the working directory; see `make_cohort`."""
    monkeypatch.chdir(tmp_path)
    return make_cohort(tmp_path)

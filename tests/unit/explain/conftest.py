"""The command in an empty folder, and a painted slide that several files use."""

from pathlib import Path

import pytest
from known_regions import write_slide

from cli.running import Runner


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    return Runner(monkeypatch, capsys)


@pytest.fixture
def refused(run):
    """Check that a command without its output folder is refused in one line with this text, and writes nothing."""

    def check(culprit, *arguments):
        _, err = run(*arguments, "-o", "refused", code=2)
        assert culprit in err
        assert err.count("\n") == 1
        assert not Path("refused").exists()

    return check


@pytest.fixture(scope="session")
def slide(tmp_path_factory):
    """Folder of an image, its features and its prototypes, which tests do not change."""
    folder = tmp_path_factory.mktemp("slide")
    write_slide(folder)
    return folder

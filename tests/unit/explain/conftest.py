"""The command in an empty folder, and a painted slide that several files look at."""

import pytest
from known_regions import write_slide

from cli.running import Runner


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    return Runner(monkeypatch, capsys)


@pytest.fixture(scope="session")
def slide(tmp_path_factory):
    """Folder of an image, its features and its prototypes, which tests leave as they are."""
    folder = tmp_path_factory.mktemp("slide")
    write_slide(folder)
    return folder

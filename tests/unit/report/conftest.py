"""Finished runs and an atlas, shared by all tests of reports; who changes the atlas copies it."""

import pytest

from cli.running import Runner
from report.studies import EVIL, make_atlas, run
from study.generated import generate


@pytest.fixture(scope="session")
def classes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("classes")
    generate(folder, patients=48, patches=24)
    (folder / "table.csv").write_text((folder / "table.csv").read_text().replace("west", EVIL))
    return run(folder, task={"label": "subtype"})


@pytest.fixture(scope="session")
def survival(tmp_path_factory):
    folder = tmp_path_factory.mktemp("survival")
    generate(folder, patients=48, patches=24)
    return run(folder, task={"survival": "dss"}, splits={"scheme": "site-kfold", "k": 3}, methods=["panther"])


@pytest.fixture(scope="session")
def atlas(classes, tmp_path_factory):
    return make_atlas(classes, tmp_path_factory.mktemp("atlas"))


@pytest.fixture
def panther(monkeypatch, capsys):
    return Runner(monkeypatch, capsys)

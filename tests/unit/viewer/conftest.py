"""A small cohort, a workbench over it, clients with and without access, and the real server."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from flask import Flask
from flask.testing import FlaskClient

from panther.viewer.address import PREFIX, PUBLIC
from panther.viewer.contents import find_contents
from panther.viewer.guard import Guard
from panther.viewer.serve import Viewer
from panther.viewer.server import make_app
from panther.viewer.workbench import Workbench
from viewer.asking import entered
from viewer.attacks import RecordingQuery
from viewer.small_cohort import SECRET, write_cohort
from viewer.small_study import write_study


@pytest.fixture
def nowhere_in_particular(monkeypatch: pytest.MonkeyPatch) -> None:
    """No hub, no SSH and no display, whoever runs the tests."""
    for name in (PREFIX, PUBLIC, "SSH_CONNECTION", "DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def written_cohort(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made once; tests that change files take `cohort_folder`."""
    return write_cohort(tmp_path_factory.mktemp("viewer") / "cohort")


@pytest.fixture(scope="session")
def class_study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a finished run, beside its features and its table."""
    return write_study(tmp_path_factory.mktemp("study"), tmp_path_factory.mktemp("elsewhere"))


@pytest.fixture
def cohort_folder(written_cohort: Path, tmp_path: Path) -> Path:
    """A copy for one test."""
    return Path(shutil.copytree(written_cohort, tmp_path / "cohort"))


@pytest.fixture
def outside(cohort_folder: Path) -> Path:
    """A folder that was not opened, with a file that must not be read."""
    folder = cohort_folder.parent / "outside"
    folder.mkdir()
    (folder / "secret.txt").write_bytes(SECRET)
    return folder


@pytest.fixture
def bench(cohort_folder: Path) -> Workbench:
    """Workbench in this process."""
    return Workbench(find_contents(cohort_folder))


@pytest.fixture
def client(bench: Workbench) -> FlaskClient:
    """A client with the cookie."""
    return entered(bench)


@pytest.fixture
def viewer(bench: Workbench) -> Iterator[Viewer]:
    """The real server."""
    with Viewer(bench) as running:
        yield running


@pytest.fixture
def guard() -> Guard:
    """Requirements of `app`."""
    return Guard()


@pytest.fixture
def app(bench: Workbench, guard: Guard) -> Flask:
    """The application; names that it looks up in a query are recorded."""
    made = make_app(bench, guard)
    made.request_class = type("Request", (made.request_class,), {"parameter_storage_class": RecordingQuery})
    return made


@pytest.fixture
def stranger(app: Flask) -> FlaskClient:
    """A client without a cookie."""
    return app.test_client()


@pytest.fixture
def guest(app: Flask, guard: Guard) -> FlaskClient:
    """A client of `app` with the cookie."""
    client = app.test_client()
    assert client.get(f"/?token={guard.token}").status_code == 200
    return client

"""The viewer in a real browser: one browser for all tests, one running viewer for each file of tests."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from browser.window import Window, new_profile
from panther.viewer.contents import find_contents
from panther.viewer.serve import Viewer
from panther.viewer.workbench import Workbench
from viewer import conftest as fixtures

class_study, written_cohort = fixtures.class_study, fixtures.written_cohort
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """The system's Chromium."""
    if CHROMIUM is None:
        pytest.skip("no Chromium here; on Debian: apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as started:
        running = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield running
        running.close()


@pytest.fixture(scope="module")
def browsed_cohort(written_cohort: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the cohort for one file of tests."""
    return Path(shutil.copytree(written_cohort, tmp_path_factory.mktemp("browser") / "cohort"))


@pytest.fixture(scope="module")
def shown(browsed_cohort: Path) -> Iterator[Viewer]:
    """The viewer that the browser looks at."""
    with Viewer(Workbench(find_contents(browsed_cohort))) as running:
        yield running


@pytest.fixture(scope="module")
def profile(browser: Any) -> Iterator[Any]:
    """A profile, with the page's scripts in its cache from test to test."""
    context = new_profile(browser)
    yield context
    context.close()


@pytest.fixture
def window(profile: Any, shown: Viewer) -> Iterator[Window]:
    """A window, in which the page may neither report an error nor contact another server."""
    with Window(profile, shown.address) as opened:
        yield opened
        assert opened.complaints == []

"""Files that crash their library, and many clients at once: the server stays up."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from panther.engine import map_all, open_executor
from panther.errors import InputError
from panther.viewer.contents import Contents, find_contents
from panther.viewer.serve import Viewer
from panther.viewer.workbench import Workbench
from viewer.asking import Browser, notes_of
from viewer.crashing import Crashing, twice, wait_for


@pytest.fixture
def guarded(cohort_folder):
    """Workbench with one worker for pages and one for what takes long."""
    with open_executor(1) as executor, open_executor(1) as long_executor:
        yield Workbench(find_contents(cohort_folder), None, executor, long_executor)


def with_features(contents: Contents, name: str, features: Crashing) -> Contents:
    return replace(contents, slides={**contents.slides, name: replace(contents.slides[name], features=features)})


def test_a_file_that_crashes_its_library_fails_the_request_and_not_the_server(guarded, cohort_folder):
    path = cohort_folder / "features" / "S0.h5"
    guarded.contents = with_features(guarded.contents, "S0", Crashing("S0", (path,)))
    assert "SIGSEGV" in notes_of(guarded, "S0")
    with pytest.raises(InputError, match="SIGSEGV"), guarded.image("S0"):
        pass
    assert notes_of(guarded, "S1") == ""
    assert len(guarded._patches) == 1


def test_work_that_takes_long_does_not_keep_a_page_waiting(guarded, tmp_path):
    sign = tmp_path / "sign"
    with ThreadPoolExecutor(1) as thread:
        search = thread.submit(map_all, wait_for, [sign] * 4, "", guarded.long_work)
        assert guarded.compute(twice, 21) == 42
        assert notes_of(guarded, "S0") == ""
        sign.touch()
        assert search.result(60) == ["waited"] * 4


@pytest.fixture
def busy(guarded):
    with Viewer(guarded) as running:
        yield running


def test_fifty_clients_at_once_all_get_their_answers(busy):
    base = busy.address.partition("?")[0]
    begin = threading.Barrier(50)

    def visit(number: int) -> list[int]:
        browser, name = Browser(), f"S{number % 6}"
        begin.wait(60)
        paths = ("api/contents", f"api/slides/{name}", f"layers/{name}/prototypes/0/0/0.png")
        return [browser.get(address).status for address in (busy.address, *(f"{base}{path}" for path in paths))]

    with ThreadPoolExecutor(50) as clients:
        assert list(clients.map(visit, range(50))) == [[200] * 4] * 50

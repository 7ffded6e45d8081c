"""Files that change, disappear or crash their library, many clients at once: one clear sentence each, and the server stays up."""

import gc
import os
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import h5py
import psutil
import pytest

from panther.errors import InputError
from panther.execution import Work, map_all, open_executor
from panther.storage.fingerprints import version_of
from panther.viewer.contents import Contents, find_contents
from panther.viewer.kept import Kept
from panther.viewer.security import Guard
from panther.viewer.serve import Viewer
from panther.viewer.server import make_app
from panther.viewer.workbench import MAPS, OPEN_SLIDES, Workbench
from viewer.asking import Browser
from viewer.crashing import Crashing, own_process, twice, wait_for

# --- what is kept ----------------------------------------------------------------------------------------------------


def fail() -> None:
    raise InputError("no")


def test_what_fails_is_not_kept_and_leaves_nothing_behind():
    kept = Kept(4)
    for number in range(100):
        with pytest.raises(InputError):
            kept.get(number, fail)
    assert (len(kept), kept._making) == (0, {})
    assert kept.get(7, lambda: "yes") == "yes"


def test_a_value_is_made_once_however_many_ask_and_its_failure_is_theirs_too():
    kept, made, go_on = Kept(4), [], threading.Event()

    def make() -> None:
        made.append(1)
        go_on.wait(30)
        raise InputError("damaged")

    def ask(_: int) -> str:
        try:
            kept.get("key", make)
        except InputError as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(8) as threads:
        asked = [threads.submit(ask, number) for number in range(8)]
        while not made:
            pass
        go_on.set()
        said = [one.result(60) for one in asked]
    assert set(said) == {"damaged"}
    assert len(made) < 8  # those that came too late look again, the others do not


def test_another_version_replaces_the_value_and_forgets_the_old_one():
    forgotten = []
    kept = Kept(4, forgotten.append)
    assert kept.get("a", lambda: "old", version=1) == "old"
    assert kept.get("a", lambda: "new", version=1) == "old"
    assert kept.get("a", lambda: "new", version=2) == "new"
    assert (forgotten, len(kept)) == (["old"], 1)
    kept.drop("a")
    kept.drop("a")
    assert forgotten == ["old", "new"]


def test_values_are_bounded_by_what_they_weigh_and_the_last_one_stays():
    forgotten = []
    kept = Kept(10, forgotten.append, weigh=int)
    for number in (4, 5, 3):
        kept.get(number, lambda number=number: number)
    assert forgotten == [4]
    kept.get(3, fail)
    kept.get(99, lambda: 99)
    assert (forgotten, len(kept)) == ([4, 5, 3], 1)
    kept.clear()
    assert (len(kept), kept._weight) == (0, 0)


# --- files that change -----------------------------------------------------------------------------------------------


def sentence(bench: Workbench, name: str) -> str:
    """What a page says of the slide: of its features, or why it cannot be opened."""
    try:
        return " ".join(bench.patches(name).notes)
    except InputError as error:
        return str(error)


def test_features_that_are_replaced_are_read_again(bench, cohort_folder):
    whole = len(bench.patches("S0").corners)
    (cohort_folder / "features" / "S3.h5").replace(cohort_folder / "features" / "S0.h5")
    assert len(bench.patches("S0").corners) == whole - 60


@pytest.mark.parametrize("length", [0, 8, 600, 2000])
def test_features_cut_short_while_open_are_one_sentence_until_they_are_whole_again(bench, cohort_folder, length):
    path = cohort_folder / "features" / "S0.h5"
    content = path.read_bytes()
    assert sentence(bench, "S0") == ""
    path.write_bytes(content[:length])
    assert str(path) in sentence(bench, "S0")
    path.write_bytes(content)
    os.utime(path, ns=(1, 1))  # a copy may have the old time, or any other
    assert sentence(bench, "S0") == ""


def test_features_that_disappear_are_one_sentence(bench, cohort_folder):
    (cohort_folder / "features" / "S4.h5").unlink()
    assert "S4.h5" in sentence(bench, "S4")


def test_features_that_another_process_writes_are_told_from_damaged_ones(bench, cohort_folder):
    path = cohort_folder / "features" / "S4.h5"
    path.unlink()
    with h5py.File(path, "w", libver="latest") as file:
        file.create_dataset("features", data=[[0.0]])
        file.flush()
        said = sentence(bench, "S4")
    assert "S4.h5" in said


def test_prototypes_that_are_fitted_again_are_read_again(bench, cohort_folder):
    import panther

    assert bench.patches("S0").assignment.shape[1] == 3
    fewer = replace(bench.prototypes(), centroids=bench.prototypes().centroids[:2], occupancy=None)
    panther.save_prototypes(fewer, cohort_folder / "prototypes.safetensors")
    assert bench.patches("S0").assignment.shape[1] == 2


def test_a_slide_that_disappears_while_open_is_one_sentence_and_comes_back(bench, cohort_folder):
    path = cohort_folder / "slides" / "S0.tif"
    with bench.image("S0") as slide:
        assert slide.dimensions == (1500, 1130)
    path.rename(path.with_suffix(".away"))
    with pytest.raises(InputError, match=r"S0\.tif: the slide is not there any more"), bench.image("S0"):
        pass
    assert len(bench._images) == 0
    path.with_suffix(".away").rename(path)
    with bench.image("S0") as slide:
        assert slide.dimensions == (1500, 1130)


@pytest.mark.parametrize("damage", [b"", b"II*\0", b"garbage" * 1000])
def test_a_slide_that_is_damaged_while_open_is_one_sentence_and_comes_back(bench, cohort_folder, damage):
    path = cohort_folder / "slides" / "S0.tif"
    content = path.read_bytes()
    with bench.image("S0"):
        pass
    path.write_bytes(damage)
    with pytest.raises(InputError, match=r"S0\.tif"), bench.image("S0"):
        pass
    path.write_bytes(content)
    with bench.image("S0") as slide:
        assert slide.read_region(0, 0, 0, 8, 8).shape == (8, 8, 3)


def test_a_read_that_fails_opens_the_slide_anew_the_next_time(bench):
    with bench.image("S0") as before:
        pass
    with pytest.raises(InputError), bench.image("S0"):
        raise InputError("a tile is damaged")
    with bench.image("S0") as after:
        assert after is not before


def test_damaged_features_do_not_hide_the_image(bench, cohort_folder):
    (cohort_folder / "features" / "S0.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(200))
    with bench.image("S0") as slide:
        assert slide.dimensions == (1500, 1130)
    assert bench.patches("S0").canvas.width == 1500
    assert "S0.h5" in sentence(bench, "S0")


def test_every_page_of_a_slide_whose_files_are_gone_answers_with_a_sentence(bench, cohort_folder):
    guard = Guard()
    client = make_app(bench, guard).test_client()
    client.get(f"/?token={guard.token}")
    assert client.get("/tiles/S0/0/0/0.jpg").status_code == 200
    for folder, ending in (("slides", "tif"), ("features", "h5")):
        (cohort_folder / folder / f"S0.{ending}").unlink()
    about = client.get("/api/slides/S0").get_json()  # the page itself, with nothing on it and the reasons
    assert about["zooms"] == 0
    assert any("S0.tif" in note for note in about["notes"])
    assert any("S0.h5" in note for note in about["notes"])
    for path in ("/tiles/S0/0/0/0.jpg", "/layers/S0/prototypes/0/0/0.png"):
        response = client.get(path)
        assert response.status_code in (404, 422), path
        assert response.get_json()["error"].endswith(".")
    assert client.get("/api/slides/S1").status_code == 200


# --- worker processes ------------------------------------------------------------------------------------------------


@pytest.fixture
def guarded(cohort_folder):
    """Workbench with one worker for pages and one for what takes long."""
    with open_executor(1) as executor, open_executor(1) as long_executor:
        yield Workbench(find_contents(cohort_folder), None, executor, long_executor)


def with_features(contents: Contents, name: str, features: Crashing) -> Contents:
    return replace(contents, slides={**contents.slides, name: replace(contents.slides[name], features=features)})


def test_a_file_that_crashes_its_library_costs_the_request_and_not_the_server(guarded, cohort_folder):
    path = cohort_folder / "features" / "S0.h5"
    guarded.contents = with_features(guarded.contents, "S0", Crashing("S0", (path,)))
    assert f"{path}: reading this file crashes the library" in sentence(guarded, "S0")
    assert sentence(guarded, "S1") == ""
    assert guarded._patches._making == {}


def test_an_image_whose_features_crash_is_refused_without_opening_it_here(guarded, cohort_folder):
    path = cohort_folder / "features" / "S0.h5"
    guarded.contents = with_features(guarded.contents, "S0", Crashing("S0", (path,)))
    with pytest.raises(InputError, match="crashes the library"), guarded.image("S0"):
        pass


def test_work_that_takes_long_does_not_keep_a_page_waiting(guarded, tmp_path):
    sign = tmp_path / "sign"
    with ThreadPoolExecutor(1) as thread:
        search = thread.submit(map_all, wait_for, [sign] * 4, "", guarded.long_work)
        assert guarded.compute(twice, 21) == 42
        assert sentence(guarded, "S0") == ""
        sign.touch()
        assert search.result(60) == ["waited"] * 4


def test_one_pool_serves_many_threads_and_each_gets_its_own_answer(guarded):
    with ThreadPoolExecutor(16) as threads:
        assert list(threads.map(lambda n: guarded.compute(twice, n), range(200))) == list(range(0, 400, 2))


def test_workers_that_were_killed_are_replaced(guarded):
    for _ in range(3):
        os.kill(guarded.compute(own_process), signal.SIGKILL)
        assert guarded.compute(twice, 3) == 6


def test_a_pool_that_cannot_start_a_worker_says_so_and_starts_one_later():
    with open_executor(1) as pool:
        start, work = pool._start, Work(pool)

        def refuse() -> None:
            raise OSError(12, "Cannot allocate memory")

        pool._start = refuse
        with pytest.raises(InputError, match="Worker processes cannot be started"):
            map_all(twice, [1], "", work)
        pool._start = start
        assert map_all(twice, [1], "", work) == [2]


# --- many at once ----------------------------------------------------------------------------------------------------


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
        asked = [
            busy.address,
            f"{base}api/contents",
            f"{base}api/slides/{name}",
            f"{base}layers/{name}/prototypes/0/0/0.png",
        ]
        return [browser.get(address).status for address in asked]

    with ThreadPoolExecutor(50) as clients:
        found = list(clients.map(visit, range(50)))
    assert found == [[200] * 4] * 50


def test_a_storm_of_reloads_that_hang_up_leaves_the_server_as_it_was(busy):
    host, port = urlsplit(busy.address).netloc.split(":")
    cookie = f"{busy.guard.cookie}={busy.guard.session}"
    asked = [
        f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nCookie: {cookie}\r\n\r\n".encode()
        for path in ("/", "/api/contents", "/api/slides/S0", "/plotly.js", "/tiles/S0/0/0/0.jpg")
    ]

    def reload(number: int) -> None:
        for request in asked:
            with socket.create_connection((host, int(port)), timeout=30) as connection:
                connection.sendall(request)
                if number % 2:
                    connection.recv(10)  # hangs up in the middle of the answer

    with ThreadPoolExecutor(20) as browsers:
        list(browsers.map(reload, range(60)))
    browser = Browser()
    assert browser.get(busy.address).status == 200
    assert browser.get(f"http://{host}:{port}/api/slides/S1").status == 200


def test_half_a_request_keeps_nobody_waiting(busy):
    host, port = urlsplit(busy.address).netloc.split(":")
    slow = [socket.create_connection((host, int(port)), timeout=30) for _ in range(40)]
    try:
        for connection in slow:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: 127")
        assert Browser().get(busy.address).status == 200
    finally:
        for connection in slow:
            connection.close()


# --- memory ----------------------------------------------------------------------------------------------------------


def many_slides(cohort_folder: Path, count: int) -> Contents:
    """The same slide under many names."""
    for number in range(count):
        for folder, ending in (("slides", "tif"), ("features", "h5")):
            os.link(cohort_folder / folder / f"S0.{ending}", cohort_folder / folder / f"M{number:04d}.{ending}")
    return find_contents(cohort_folder)


def visit_all(bench: Workbench, names: list[str]) -> None:
    for name in names:
        bench.patches(name)
        with bench.image(name) as slide:
            slide.read_region(0, 0, 0, 256, 256)


def test_what_is_kept_of_many_slides_is_bounded(cohort_folder, monkeypatch):
    contents = many_slides(cohort_folder, 3 * OPEN_SLIDES)
    bench = Workbench(contents)
    handles = psutil.Process().num_fds()
    visit_all(bench, list(contents.slides)[: 3 * OPEN_SLIDES])
    assert len(bench._images) == OPEN_SLIDES
    assert psutil.Process().num_fds() <= handles + 3 * OPEN_SLIDES
    assert bench._patches._weight <= MAPS
    bench.close()
    assert len(bench._images) == 0


def test_a_slide_that_is_forgotten_while_it_is_read_is_closed_by_its_reader(cohort_folder):
    bench = Workbench(many_slides(cohort_folder, OPEN_SLIDES + 2))
    with bench.image("M0000") as slide:
        for number in range(1, OPEN_SLIDES + 2):  # nobody waits for M0000
            with bench.image(f"M{number:04d}"):
                pass
        assert slide.read_region(0, 0, 0, 8, 8).shape == (8, 8, 3)
    with bench.image("M0000") as again:
        assert again is not slide


@pytest.mark.slow
def test_memory_is_flat_over_a_thousand_slides(cohort_folder):
    contents = many_slides(cohort_folder, 1000)
    names = list(contents.slides)[:1000]
    with open_executor(1) as executor:
        bench, here = Workbench(contents, None, executor), psutil.Process()
        visit_all(bench, names[:200])
        gc.collect()
        before = here.memory_info().rss
        visit_all(bench, names[200:])
        gc.collect()
        grown = here.memory_info().rss - before
        print(f"{before / 2**20:.0f} MiB after 200 slides, {grown / 2**20:+.1f} MiB after 1,000")
        assert grown < 64 * 2**20


def test_a_version_tells_files_that_are_not_there(tmp_path):
    file = tmp_path / "a"
    assert version_of([file]) == (None,)
    file.write_text("x")
    first = version_of([file])
    file.write_text("xy")
    assert first != version_of([file])

"""Starting and stopping: one address, alone on its line; ended by signals; in a notebook."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

import panther
from cli.running import Runner
from panther.errors import InputError
from panther.verbs.view import notes_on_access, until_stopped
from panther.viewer import serve
from panther.viewer.address import PREFIX, ListenConfig
from panther.viewer.serve import Viewer
from viewer.asking import Browser

pytestmark = pytest.mark.usefixtures("nowhere_in_particular")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_both_signals_are_the_usual_way_to_end_it(how):
    before = signal.getsignal(how)
    with until_stopped() as stopped:
        assert not stopped.is_set()
        signal.raise_signal(how)
        assert stopped.wait(10)
    assert signal.getsignal(how) is before


def command_line(folder) -> subprocess.Popen:
    command = [sys.executable, "-m", "panther", "view", str(folder), "-j", "1", "--no-browser"]
    environment = {**os.environ, "COLUMNS": "40"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def workers_after_first_request(running: subprocess.Popen) -> list[psutil.Process]:
    line = running.stdout.readline()  # comes while it runs: it was flushed
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{32}\n", line)
    browser, base = Browser(), line.partition("?")[0]
    assert browser.get(line.strip()).status == 200
    assert len(browser.get(f"{base}api/contents").json["slides"]) == 6
    assert browser.get(f"{base}api/slides/S0").status == 200  # starts workers
    return psutil.Process(running.pid).children(recursive=True)


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_the_address_comes_through_a_pipe_at_once_and_a_signal_ends_everything(cohort_folder, how):
    running = command_line(cohort_folder)
    try:
        family = workers_after_first_request(running)
        assert family
        running.send_signal(how)
        out, err = running.communicate(timeout=60)
    finally:
        running.kill()
        running.communicate()
    assert running.returncode == 0
    assert (out, err) == ("", "")  # no other address, no traceback
    _gone, alive = psutil.wait_procs(family, timeout=20)
    assert not alive


@pytest.mark.slow
def test_a_viewer_that_was_killed_leaves_no_workers(cohort_folder):
    running = command_line(cohort_folder)
    family = workers_after_first_request(running)
    running.kill()
    running.communicate()
    assert family
    assert not psutil.wait_procs(family, timeout=20)[1]


def test_a_port_in_use_and_the_host_of_another_machine_are_refused(monkeypatch, capsys, cohort_folder):
    with ListenConfig().listen() as other:
        port = other.getsockname()[1]
        out, err = Runner(monkeypatch, capsys)("view", cohort_folder, "--port", port, "-j", 1, code=2)
    assert (out, f"127.0.0.1, port {port}" in err) == ("", True)
    for host in ("no-such-host.invalid", "192.0.2.1"):
        with pytest.raises(InputError, match=host):
            ListenConfig(host).listen()


def test_the_command_line_works_without_the_packages_of_the_viewer():
    program = "import sys; sys.modules['flask'] = None; from panther.cli import build_app; build_app(); print('waitress' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "False\n"


def test_notes_on_who_can_reach_the_viewer(monkeypatch):
    assert list(notes_on_access(ListenConfig(), 1234)) == []
    (warning,) = notes_on_access(ListenConfig("0.0.0.0"), 1234)
    assert "not encrypted" in warning
    monkeypatch.setenv("SSH_CONNECTION", "1.2.3.4 5 6.7.8.9 22")
    (hint,) = notes_on_access(ListenConfig(), 1234)
    assert "ssh -L 1234:127.0.0.1:1234" in hint
    monkeypatch.setenv(PREFIX, "/user/me/")
    (hub,) = notes_on_access(ListenConfig(), 1234)
    assert "--allow-host" in hub
    assert "http" not in warning + hint + hub
    assert list(notes_on_access(ListenConfig("0.0.0.0"), 1234, "http://node7/"))[1].endswith(": http://node7/")


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, False),
        ({"DISPLAY": ":0"}, True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, True),
        ({"DISPLAY": "localhost:10.0", "SSH_CONNECTION": "x"}, False),
        ({"BROWSER": "firefox"}, True),
    ],
)
def test_a_browser_is_opened_where_there_is_a_window(viewer, monkeypatch, environment, expected):
    opened = []
    monkeypatch.setattr(serve.webbrowser, "open", lambda address: opened.append(address) or True)
    monkeypatch.setattr(sys, "platform", "linux")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert viewer.open_browser() is expected
    assert opened == [viewer.address] * expected


def test_a_notebook_shows_the_viewer_in_a_frame_until_it_is_closed(cohort_folder):
    viewer = panther.view(cohort_folder, workers=1)
    try:
        frame = viewer._repr_html_()
        # where Jupyter is, so the cookie goes along
        assert f"http://localhost:{viewer.port}/?token={viewer.guard.token}" in frame
        assert frame.startswith("<iframe ")
        browser = Browser()
        policy = browser.get(viewer.address).headers["Content-Security-Policy"]
        assert "frame-ancestors 'self' http://localhost:* http://127.0.0.1:*" in policy
        assert browser.get(f"{viewer.address.partition('?')[0]}api/slides/S0").json["patches"] > 0
        assert viewer.guard.token not in repr(viewer)
    finally:
        viewer.close()
    viewer.close()  # twice is no harm
    assert "closed" in repr(viewer)
    assert "iframe" not in viewer._repr_html_()
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", viewer.port), timeout=2).close()


def test_a_viewer_that_cannot_start_leaves_nothing_running(tmp_path):
    before = {thread.name for thread in threading.enumerate()}
    with pytest.raises(InputError, match="neither slides nor features"):
        panther.view(tmp_path, workers=1)
    assert {thread.name for thread in threading.enumerate()} == before


def test_closing_does_not_wait_for_a_request_that_hangs(bench, monkeypatch):
    began, go_on = threading.Event(), threading.Event()
    viewer, browser = Viewer(bench), Browser()
    monkeypatch.setattr(serve, "LAST_ANSWERS", 0.2)
    monkeypatch.setattr(bench, "slide", lambda name: (began.set(), go_on.wait(60)))
    browser.get(viewer.address)
    with ThreadPoolExecutor(1) as threads:
        request = threads.submit(browser.get, f"http://127.0.0.1:{viewer.port}/api/slides/S0")
        assert began.wait(30)
        viewer.close()
        assert not go_on.is_set()
        go_on.set()
        assert isinstance(request.exception(), OSError)

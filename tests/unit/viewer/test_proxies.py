"""Addresses of the viewer: for other machines, below a hub, and behind proxies that remove the prefix or keep it."""

import http.client
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest

from panther.viewer.address import PREFIX, PUBLIC, ListenConfig, is_everywhere
from panther.viewer.serve import Viewer
from viewer.asking import Browser

pytestmark = pytest.mark.usefixtures("nowhere_in_particular")
HUB = {PREFIX: "/user/me/", PUBLIC: "https://hub.lab.org/user/me/"}


@pytest.mark.parametrize(
    ("where", "environment", "expected"),
    [
        (ListenConfig(), {}, "http://127.0.0.1:9/"),
        (ListenConfig("localhost"), {}, "http://127.0.0.1:9/"),
        (ListenConfig("0.0.0.0"), {}, "http://127.0.0.1:9/"),
        (ListenConfig("10.1.2.3"), {}, "http://10.1.2.3:9/"),
        (ListenConfig("fe80::1"), {}, "http://[fe80::1]:9/"),
        (ListenConfig("::1"), {}, "http://[::1]:9/"),
        (ListenConfig("::"), {}, "http://[::1]:9/"),
        (ListenConfig(prefix="a/b/"), {}, "http://127.0.0.1:9/a/b/"),
        (ListenConfig(prefix="/"), {}, "http://127.0.0.1:9/"),
        (ListenConfig(), {PREFIX: "/user/me/"}, "http://127.0.0.1:9/user/me/proxy/9/"),
        (ListenConfig(), HUB, "https://hub.lab.org/user/me/proxy/9/"),
        (ListenConfig(prefix=""), HUB, "http://127.0.0.1:9/"),
        (ListenConfig(prefix="/x"), HUB, "http://127.0.0.1:9/x/"),
    ],
)
def test_the_address_follows_from_host_prefix_and_hub(monkeypatch, where, environment, expected):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert f"{where.origin(9)}{where.path(9)}/" == expected


@pytest.mark.parametrize("name", ["node7.lab.org", "localhost.localdomain"])
def test_the_address_for_other_machines_has_the_name_of_this_one(monkeypatch, name):
    monkeypatch.setattr(socket, "gethostname", lambda: name.partition(".")[0])
    monkeypatch.setattr(socket, "getfqdn", lambda: name)
    for host in ("0.0.0.0", "::", "0:0:0:0:0:0:0:0"):
        assert ListenConfig(host).elsewhere(80) == ("http://node7.lab.org:80" if name.startswith("node7") else "")
    assert not any(ListenConfig(host).elsewhere(80) for host in ("127.0.0.1", "::1", "10.1.2.3", "localhost", "lab"))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "127.0.0.1"])
def test_requests_may_use_the_names_of_the_machine_and_where_it_listens_everywhere_any_number(bench, host):
    with Viewer(bench, ListenConfig(host)) as viewer:
        base = f"http://127.0.0.1:{viewer.port}/"  # a socket of :: receives both kinds of addresses
        address = f"{base}?token={viewer.guard.token}"
        for name in ("10.20.30.40", "[2001:db8::7]"):
            assert (Browser().get(address, Host=f"{name}:{viewer.port}").status == 200) is is_everywhere(host)
            assert (Browser().get(address, Host=socket.gethostname()).status == 200) is is_everywhere(host)
        assert Browser().get(address, Host="localhost").status == 200
        for name in ("evil.example", "10.20.30.40.evil.example", "2130706433", "1.2.3", ""):
            assert Browser().get(address, Host=name).status == 403
        assert Browser().get(f"{base}api/contents", Host="10.20.30.40").status == 403  # a number is no token


def test_the_name_of_the_hub_is_known_from_its_environment(monkeypatch, bench):
    monkeypatch.setenv(PREFIX, HUB[PREFIX])
    monkeypatch.setenv(PUBLIC, HUB[PUBLIC])
    with Viewer(bench) as viewer:
        assert viewer.address.startswith("https://hub.lab.org/user/me/proxy/")
        assert f'src="/user/me/proxy/{viewer.port}/?token=' in viewer._repr_html_()
        here = f"http://127.0.0.1:{viewer.port}{urlsplit(viewer.address).path}?token={viewer.guard.token}"
        assert Browser().get(here, Host="hub.lab.org").status == 200
        assert Browser().get(here, Host="evil.example").status == 403


@contextmanager
def proxy(port: int, prefix: str, *, strips: bool, rewrites_host: bool) -> Iterator[str]:
    """A real reverse proxy: addresses below the prefix go to the port; returns its origin."""

    class Passing(BaseHTTPRequestHandler):
        def _pass(self) -> None:
            if not self.path.startswith(prefix):
                self.send_error(404)
                return
            path = self.path[len(prefix) :] if strips else self.path
            headers = dict(self.headers.items())
            if rewrites_host:
                headers["Host"] = f"127.0.0.1:{port}"
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            onward = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            onward.request(self.command, path or "/", body, headers)
            answer = onward.getresponse()
            content = answer.read()
            onward.close()
            self.send_response_only(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = _pass  # noqa: N815

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Passing)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://localhost:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


# a prefix that is neither removed nor passed on cannot be known
@pytest.mark.parametrize(("strips", "explicit"), [(True, True), (False, True), (True, False)])
def test_the_viewer_works_behind_a_proxy_that_removes_the_prefix_and_one_that_does_not(bench, strips, explicit):
    prefix = "/user/me/view"
    with (
        Viewer(bench, ListenConfig(prefix=prefix if explicit else None)) as viewer,
        proxy(viewer.port, prefix, strips=strips, rewrites_host=False) as origin,
    ):
        browser, base = Browser(), f"{origin}{prefix}/"
        assert browser.get(base).status == 403
        page = browser.get(f"{base}?token={viewer.guard.token}")
        assert page.status == 200
        (cookie,) = browser.jar
        assert cookie.path.rstrip("/") == prefix  # other servers of the same host do not get it
        assert browser.get(base).status == 200
        for script in re.findall(r'(?:src|href)="([^":]+)"', browser.get(base).content.decode()):
            if script != "#":
                assert browser.get(f"{base}{script}").status == 200, script  # relative, so below the prefix
        assert len(browser.get(f"{base}api/contents").json["slides"]) == 6
        changed = browser.post(f"{base}api/names", {"seen": {}, "prototype": 0, "name": "y"})
        assert changed.status not in (403, 404)


def test_a_proxy_that_changes_the_host_must_be_named_for_changes(bench):
    for where, allowed in ((ListenConfig(), False), (ListenConfig(allow_hosts=("localhost",)), True)):
        with Viewer(bench, where) as viewer, proxy(viewer.port, "/v", strips=True, rewrites_host=True) as origin:
            browser = Browser()
            browser.get(f"{origin}/v/?token={viewer.guard.token}")
            assert browser.get(f"{origin}/v/api/contents").status == 200
            assert (browser.post(f"{origin}/v/api/names", {}).status != 403) is allowed


def test_a_prefix_without_its_slash_leads_to_the_one_with_it(bench):
    with Viewer(bench, ListenConfig(prefix="/a/view")) as viewer:
        connection = http.client.HTTPConnection("127.0.0.1", viewer.port, timeout=20)
        connection.request("GET", "/a/view?token=1")
        answer = connection.getresponse()
        answer.read()
        connection.close()
        assert (answer.status, answer.getheader("Location")) == (308, "view/?token=1")

"""Access: every route of the application, also those that are added later, is requested by clients without a session."""

import http.client
from urllib.parse import urlsplit

import pytest

import panther
from panther.errors import InputError
from panther.viewer.address import ListenConfig
from panther.viewer.guard import HEADERS, LARGEST, Guard
from viewer.attacks import OWN, address, refused, routes


def test_without_token_and_cookie_every_address_has_the_same_answer(app, stranger):
    more = ("/nowhere", "/static/app.js", "/static/none.js", "/tiles/none/0/0/0.jpg")
    answers = {stranger.get(path).data for path in (*map(address, routes(app)), *more)}
    answers |= {stranger.post("/api/names", json={}, headers=OWN).data}
    assert len(answers) == 1  # what exists and what does not look the same
    assert b"S0" not in answers.pop()
    assert stranger.get("/").status_code == 403


@pytest.mark.parametrize("token", ["", "x", "wrong" * 8, "%00", "\N{SNOWMAN}"])
def test_a_wrong_token_is_no_token(stranger, guard, token):
    response = stranger.get("/", query_string={"token": token})
    assert response.status_code == 403
    assert "Set-Cookie" not in response.headers
    assert stranger.get(f"/?token={guard.token[:-1]}").status_code == 403


def test_the_token_counts_at_the_front_page_only_and_never_for_a_change(stranger, guard):
    for path in ("/api/contents", "/static/app.js", "/api/link"):
        assert stranger.get(path, query_string={"token": guard.token}).status_code == 403
    for method in ("POST", "PUT", "HEAD", "DELETE"):
        assert stranger.open("/", method=method, query_string={"token": guard.token}).status_code == 403
    assert stranger.post("/api/names", query_string={"token": guard.token}, json={}, headers=OWN).status_code == 403


HOSTS = ("evil.example", "127.0.0.1.evil.example", "localhost@evil.example", "localhost#.evil", "evil:80", "[::1", "localhost:80:80", "")  # fmt: skip


@pytest.mark.parametrize("host", HOSTS)
def test_another_host_name_is_refused_even_with_the_cookie(guest, guard, host):
    for path in ("/", "/api/contents", f"/?token={guard.token}"):
        response = guest.get(path, headers={"Host": host})
        assert response.status_code == 403
        assert "Set-Cookie" not in response.headers


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8000", "127.0.0.1", "127.0.0.1:1", "[::1]:8000"])
def test_the_names_of_this_machine_are_known(app, guard, host):
    client = app.test_client()
    assert client.get(f"/?token={guard.token}", headers={"Host": host}).status_code == 200


ORIGINS = (
    "http://evil.example",
    "http://localhost:8888",
    "https://localhost.evil.example",
    "null",
    "http://[",
    "file://",
    "",
)


@pytest.mark.parametrize("origin", ORIGINS)
def test_another_origin_is_refused_for_reading_and_for_writing(guest, origin):
    assert guest.get("/api/contents", headers={"Origin": origin}).status_code == 403
    assert guest.post("/api/names", json={}, headers={"Origin": origin}).status_code == 403


def test_a_change_needs_cookie_origin_and_json(app, guest, stranger):
    assert guest.post("/api/names", json={}, headers=OWN).status_code != 403
    assert stranger.post("/api/names", json={}, headers=OWN).status_code == 403
    assert guest.post("/api/names", json={}).status_code == 403
    assert guest.post("/api/names", data={"a": "b"}, headers=OWN).status_code == 403
    assert guest.post("/api/names", data="{}", headers=OWN, content_type="text/plain").status_code == 403


@pytest.mark.parametrize("method", ["TRACE", "PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT", "PROPFIND"])
def test_methods_that_no_route_has_do_nothing(app, guest, method):
    for path in ("/", "/api/contents", "/api/names"):
        response = guest.open(path, method=method, headers={**OWN, "Content-Type": "application/json"})
        assert refused(response)
        assert "Access-Control-Allow-Origin" not in response.headers


def test_the_cookie_is_out_of_reach_of_scripts_other_sites_and_other_paths(stranger, guard):
    response = stranger.get(f"/?token={guard.token}")
    cookie = response.headers["Set-Cookie"]
    assert cookie == f"{guard.cookie}={guard.session}; HttpOnly; SameSite=Strict"
    assert guard.token not in response.text + str(response.headers)
    assert response.headers["Cache-Control"] == "no-store"


def test_two_viewers_on_one_host_share_no_cookie_and_no_token():
    one, other = Guard(), Guard()
    assert len({one.cookie, other.cookie, one.token, other.token, one.session, other.session}) == 6
    assert one.token not in repr(one)


def test_every_answer_forbids_scripts_of_others_frames_of_others_and_guessing_of_types(app, guest, stranger):
    paths = [address(rule) for rule in routes(app)] + ["/nowhere", "/static/none.js"]
    for client in (guest, stranger):
        too_large = client.post("/api/names", data=b"x" * (LARGEST + 1), headers=OWN)
        for response in [*map(client.get, paths), too_large]:
            policy = response.headers["Content-Security-Policy"]
            assert "script-src 'self';" in policy
            assert "default-src 'none'" in policy
            assert policy.endswith("frame-ancestors 'self'")
            assert "unsafe-eval" not in policy
            assert HEADERS.keys() <= set(response.headers.keys())
            names = {name for name, _ in response.headers}
            assert not names & {"Server", "X-Powered-By", "Access-Control-Allow-Origin"}


def test_a_body_larger_than_any_lasso_is_refused(guest, viewer):
    big = b'{"name": "' + b"x" * LARGEST + b'"}'
    response = guest.post("/api/names", data=big, headers=OWN, content_type="application/json")
    assert response.status_code in (400, 413)
    connection = http.client.HTTPConnection(urlsplit(viewer.address).netloc, timeout=20)
    connection.putrequest("POST", "/api/names")
    connection.putheader("Content-Length", str(1 << 40))  # refused before it is read
    connection.endheaders()
    assert connection.getresponse().status in (403, 413)
    connection.close()


def test_raw_paths_with_dots_lead_nowhere_on_the_real_server_which_does_not_name_itself(viewer):
    connection = http.client.HTTPConnection(urlsplit(viewer.address).netloc, timeout=20)
    for target in (
        "/../../etc/passwd",
        "//etc/passwd",
        "/static/../../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/static/%2e%2e%2fserver.py",
        "/tiles/..%2f..%2fetc%2fpasswd/0/0/0.jpg",
    ):
        connection.request("GET", target, headers={"Cookie": f"{viewer.guard.cookie}={viewer.guard.session}"})
        response = connection.getresponse()
        assert b"root:" not in response.read()
        assert 300 < response.status < 500
        assert response.headers["Server"] is None
    connection.close()


def test_errors_are_text_for_a_browser_and_json_for_a_script(stranger):
    page = stranger.get("/", headers={"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
    assert (page.mimetype, page.status_code) == ("text/plain", 403)
    assert "token" in page.text
    assert "error" in stranger.get("/", headers={"Accept": "*/*"}).get_json()


def test_wrong_hosts_prefixes_and_ports_are_refused():
    for wrong in ({"host": "http://x"}, {"host": ""}, {"allow_hosts": ("hub.lab/path",)}):
        with pytest.raises(InputError, match="host"):
            ListenConfig(**wrong)
    for port in (70000, -1):
        with pytest.raises(InputError, match="port"):
            panther.view("nowhere", port=port)
    for prefix in ("/a b", "/a?b", "/a#b", "/../x", "//evil.example//x", "/a\n", "javascript:alert(1)//"):
        with pytest.raises(InputError, match="prefix"):
            ListenConfig(prefix=prefix).path(1)

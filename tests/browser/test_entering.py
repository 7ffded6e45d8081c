"""Access by a link on another site's page, and in the frame of a notebook."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from panther.verbs.view import NOTEBOOKS
from panther.viewer.address import ListenConfig
from panther.viewer.contents import find_contents
from panther.viewer.serve import Viewer
from panther.viewer.workbench import Workbench


class OtherSite:
    """Another server, with one page."""

    def __init__(self) -> None:
        self.content = ""

        class Answer(BaseHTTPRequestHandler):
            def do_GET(answer) -> None:  # noqa: N805
                answer.send_response(200)
                answer.send_header("Content-Type", "text/html")
                answer.end_headers()
                answer.wfile.write(self.content.encode())

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self.port = self.server.server_address[1]


@pytest.fixture
def other_site() -> Iterator[OtherSite]:
    site = OtherSite()
    thread = threading.Thread(target=site.server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield site
    site.server.shutdown()
    site.server.server_close()
    thread.join()


@pytest.fixture
def person(browser: Any) -> Iterator[Any]:
    """A browser without cookies."""
    context = browser.new_context()
    yield context
    context.close()


def test_a_link_on_another_sites_page_leads_in_and_leaves_no_token_behind(person, shown, other_site):
    other_site.content = f'<a href="{shown.address}#page=cohort">look</a>'
    page = person.new_page()
    page.goto(f"http://localhost:{other_site.port}/")  # another site than 127.0.0.1
    page.click("a")
    page.wait_for_selector("#bar nav a")
    assert page.url == f"http://127.0.0.1:{shown.port}/#page=cohort"
    page.go_back()
    assert page.url == f"http://localhost:{other_site.port}/"  # no entry with the token in between


def test_a_stopped_server_is_reported_at_the_next_request(person, browsed_cohort):
    page, silent = person.new_page(), "The server does not answer; is `panther view` still running?"
    with Viewer(Workbench(find_contents(browsed_cohort))) as viewer:
        page.goto(f"{viewer.address}#page=cohort")
        page.wait_for_selector("#bar nav a")
    page.get_by_role("link", name="Study").click()  # its script was never fetched
    page.get_by_text(silent).first.wait_for()
    page.get_by_role("button", name="Share").click()
    page.wait_for_function("text => document.body.innerText.split(text).length > 2", arg=silent)


def test_only_a_notebook_of_this_machine_may_show_it_in_a_frame(person, browsed_cohort, other_site):
    bench = Workbench(find_contents(browsed_cohort))
    page = person.new_page()
    with Viewer(bench, ListenConfig(framed_by=NOTEBOOKS)) as viewer:
        other_site.content = viewer._repr_html_()
        page.goto(f"http://localhost:{other_site.port}/")
        page.frame_locator("iframe").locator("#bar nav a").first.wait_for()
    with Viewer(bench) as viewer:
        other_site.content = viewer._repr_html_()
        page.goto(f"http://localhost:{other_site.port}/")
        assert page.frames[-1].url.startswith("chrome-error:")

"""The report in a real browser: no network, no console errors, every figure drawn, all tabs printed."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from panther.report.material import gather
from panther.report.page import build_page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
OPTIONS = [
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
    *("--disable-background-networking", "--window-size=1280,1000", "--enable-logging=stderr", "--timeout=20000"),
]
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium; on Debian: apt-get install chromium")


def browse(path: Path, *options: str, tab: str = "") -> tuple[str, list[str]]:
    """DOM after running the scripts, and the messages of the console."""
    offline = "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={path.parent / 'profile'}"
    command = [CHROMIUM, *OPTIONS, *offline, *options, f"{path.as_uri()}{tab}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=True)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@pytest.fixture(scope="module")
def report(classes, atlas, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("browser")
    path = folder / "report.html"
    path.write_text(build_page(gather(classes, {"atlas": atlas})))
    return path


def test_everything_is_drawn_without_network_or_console_errors(report):
    text = report.read_text()
    open_page = report.with_name("opened.html")
    open_page.write_text(text.replace('class="option"', 'class="opened"'))  # also the hidden options of drop-downs
    dom, console = browse(open_page, "--dump-dom", tab="#everything")
    assert console == []
    wanted = set(re.findall(r'data-plot="([^"]+)"', text))
    assert len(wanted) > 20
    drawn = set(re.findall(r'<div id="(plot-[^"]+)" class="canvas js-plotly-plot"', dom))
    assert drawn == wanted
    assert dom.count('class="main-svg"') >= 2 * len(wanted)  # Plotly layers at least two drawings a figure


def test_an_address_with_a_tab_shows_that_tab_alone(report):
    dom, console = browse(report, "--dump-dom", tab="#results")
    assert console == []
    assert re.findall(r'<section id="panel-([a-z-]+)"[^>]*class="shown"', dom) == ["results"]
    assert re.findall(r'aria-controls="panel-([a-z-]+)" aria-selected="true"', dom) == ["results"]


def test_a_request_to_the_network_is_blocked(report):
    spoiled = report.with_name("spoiled.html")
    spoiled.write_text(report.read_text().replace("<main>", '<main><img src="https://example.invalid/x.png">'))
    console = browse(spoiled, "--dump-dom")[1]
    assert any("Content Security Policy" in line for line in console)


@pytest.mark.slow
def test_printing_shows_all_tabs(report):
    pdf = report.with_suffix(".pdf")
    assert browse(report, f"--print-to-pdf={pdf}", "--no-pdf-header-footer")[1] == []
    pages = len(re.findall(rb"/Type\s*/Page\b", pdf.read_bytes()))
    assert pages >= report.read_text().count('role="tabpanel"')

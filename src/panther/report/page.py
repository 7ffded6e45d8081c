"""The report of a study as one HTML file: tabs from Jinja2 templates, with styles, scripts and pictures inside.

Text is escaped by the templates. Charts are stored as JSON, which Plotly draws when they come into view.
"""

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, UndefinedError
from markupsafe import Markup, escape

from panther.charts.chart import Chart
from panther.errors import InputError
from panther.report.data import metric_name, outcome_of, short, where_tested
from panther.report.figures import DASH, MINUS, join_words, limits, number, p_value, plural, signed, small
from panther.report.material import Material
from panther.report.sections import FOREIGN, SECTIONS
from panther.study.tables import part_name

FOLDERS = re.compile(r"(?<![\w.~/-])/(?:[^/\s:`]+/)+")  # of an absolute path


@dataclass(frozen=True)
class Report:
    """A study as a page.

    Attributes
    ----------
    html : str
        The page, with its styles, scripts and pictures inside.
    failures : mapping
        Part that could not be shown -> reason.
    """

    html: str
    failures: Mapping[str, str]

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return len(self.html.encode())

    def to_lines(self) -> list[str]:
        """Lines of the command line."""
        return [f"One HTML file of {self.size / 1e6:.1f} MB; open it in any browser, or print it."]

    def to_json(self) -> dict[str, Any]:
        """Content of `--json`."""
        return {"bytes": self.size}


def build_page(material: Material) -> str:
    """Render the whole document; the same material gives the same text."""
    tabs: dict[str, str] = {}
    for name in [*list(SECTIONS)[1:], "Summary"]:  # last, because it lists the missing tabs
        try:
            content = render_tab(material, name, absent=[tab for tab in SECTIONS if tab not in tabs])
        except (AttributeError, KeyError, TypeError, ValueError, IndexError, UndefinedError) as error:
            if name not in FOREIGN:
                raise
            problem = f"a file of its folder is not as expected ({type(error).__name__}: {error})"
            material.failures[name] = f"The tab {name} is left out: {problem}; write it again with this version."
            continue
        if content:
            tabs[name] = content
    tabs = {name: tabs[name] for name in SECTIONS if name in tabs}
    scripts = [_resource("package_data/plotly.min.js", "plotly"), _resource("page.js")]
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    # security: nothing is loaded from outside, and only these two scripts may run
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    policy = f"default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; script-src {allowed}"
    template = environment().get_template("page.html")
    style, title = _resource("page.css"), outcome_of(material.run).title
    return template.render(material=material, tabs=tabs, scripts=scripts, policy=policy, style=style, outcome=title)


def render_tab(material: Material, name: str, **more: Any) -> str:
    """HTML of one tab; empty where there is nothing to show."""
    context = SECTIONS[name](material)
    if context is None:
        return ""
    tabs = environment().get_template("tabs.html").module
    return str(getattr(tabs, SECTIONS[name].__name__)({"run": material.run, **context, **more}))


def _code(sentence: str) -> Markup:
    """Put `parts in backticks` in code elements; of a path on this machine only the name of the file stays."""
    parts = str(escape(FOLDERS.sub("", sentence))).split("`")
    return Markup("".join(f"<code>{part}</code>" if k % 2 else part for k, part in enumerate(parts)))


def _figure(chart: Chart) -> dict[str, Any]:
    drawn = chart.plotly()
    text = json.dumps(drawn, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    # `<` could end the script element
    return {"height": drawn["layout"]["height"], "json": Markup(text.replace("<", "\\u003c"))}


@cache
def environment() -> Environment:
    """Templates of the page, with autoescape and the formats of numbers."""
    templates = Environment(
        loader=PackageLoader("panther.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {
        "code": _code, "figure": _figure, "join_words": join_words, "metric": metric_name, "number": number, "p": p_value,
        "part": part_name, "plural": plural, "short": short, "signed": signed, "small": small, "where": where_tested,
    }  # fmt: skip
    templates.tests["numeric"] = lambda cell: (
        str(cell)[:1].isdigit() or (str(cell)[:1] in f"{MINUS}{DASH}-<+[" and len(str(cell)) < 40)
    )
    templates.globals |= {"limits": limits, "signed": signed}
    return templates


def _resource(name: str, package: str = "panther.report") -> str:
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")


def written_folder(name: str, value: Any) -> Path:
    """Folder of an argument: a path, or the folder that a result was written to."""
    if isinstance(value, (str, Path)):
        return Path(value)
    files = [file for file in getattr(value, "files", ()) if file.suffix == ".json"]
    if not files:
        raise InputError(f"{name}: was not written to files; expected its folder, or a value made with `output`")
    return Path(files[0]).parent

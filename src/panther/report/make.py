"""The report of a study as one HTML file: tabs of sections, with styles, scripts and pictures inside."""

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from panther.errors import InputError
from panther.report.html import Html, tag
from panther.report.material import Material
from panther.report.outcomes import outcome_of
from panther.report.sections import FOREIGN, SECTIONS, summary


def build_page(material: Material) -> str:
    """The whole document; the same material gives the same text."""
    tabs: dict[str, Html] = {}
    for name in SECTIONS:
        found = _filled(material, name)
        if found is not None:
            tabs[name] = found
    absent = [name for name in SECTIONS if name not in tabs]
    tabs = {"Summary": summary(material, absent), **tabs}
    scripts = [_plotly(), _resource("page.js")]
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_policy(scripts)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="generator", content=f"panther-wsi {material.run.record['version']}"),
        tag("title", f"{material.title} | PANTHER report"),
        tag("style", Html(_resource("page.css"))),
    )
    body = tag(
        "body",
        _masthead(material),
        _tablist(list(tabs)),
        _panels(tabs),
        _footer(),
        [tag("script", Html(s)) for s in scripts],
    )
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def _filled(material: Material, name: str) -> Html | None:
    try:
        return SECTIONS[name](material)
    except (AttributeError, KeyError, TypeError, ValueError, IndexError) as error:
        if name not in FOREIGN:
            raise
        material.failures[name] = (
            f"The tab {name} is left out: a file of its folder is not as expected ({type(error).__name__}: {error}); write it "
            f"again with this version."
        )
        return None


def _policy(scripts: list[str]) -> str:
    """Nothing may be loaded, and only our two scripts may run: not even a name that slipped through could do harm."""
    allowed = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts)
    return f"default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; script-src {allowed}"


def _masthead(material: Material) -> Html:
    study = material.run.study
    line = f"{outcome_of(material.run).title}, study {study.name} · panther-wsi {material.run.record['version']}"
    return tag(
        "header",
        tag("p", "PANTHER report", class_="kicker"),
        tag("h1", material.title),
        tag("p", line, class_="byline"),
    )


def _tablist(names: list[str]) -> Html:
    buttons = [
        tag("a", name, href=f"#{_key(name)}", role="tab", id=f"tab-{_key(name)}", aria_controls=f"panel-{_key(name)}")
        for name in names
    ]
    everything = tag(
        "a", "All", href="#everything", id="tab-everything", class_="everything", title="All tabs on one page"
    )
    return tag("nav", tag("div", buttons, role="tablist", aria_label="Parts of the report"), everything)


def _panels(tabs: dict[str, Html]) -> Html:
    return tag(
        "main",
        [
            tag(
                "section",
                content,
                id=f"panel-{_key(name)}",
                role="tabpanel",
                aria_labelledby=f"tab-{_key(name)}",
                tabindex=-1,
            )
            for name, content in tabs.items()
        ],
    )


def _footer() -> Html:
    text = (
        "Prototypes after Song et al., Morphological Prototyping for Unsupervised Slide Representation Learning in "
        "Computational Pathology, CVPR 2024."
    )
    return tag("footer", tag("p", text), tag("p", "For research. Not a medical device."))


def _key(name: str) -> str:
    return name.lower().replace(" ", "-")


def _resource(name: str) -> str:
    return resources.files("panther.report").joinpath(name).read_text(encoding="utf-8")


def _plotly() -> str:
    try:
        return resources.files("plotly").joinpath("package_data/plotly.min.js").read_text(encoding="utf-8")
    except (ModuleNotFoundError, FileNotFoundError) as error:
        raise InputError(
            "The report needs the package plotly, which is not here; install it: pip install 'panther-wsi[report]'."
        ) from error


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
        """Lines for people."""
        return [f"One HTML file of {self.size / 1e6:.1f} MB; open it in any browser, or print it."]

    def to_json(self) -> dict[str, Any]:
        """The same for programs."""
        return {"bytes": self.size}


def written_folder(name: str, value: Any) -> Path:
    """Folder of another command, or the one that a value was written to."""
    if isinstance(value, (str, Path)):
        return Path(value)
    files = [file for file in getattr(value, "files", ()) if file.suffix == ".json"]
    if not files:
        raise InputError(f"{name}: was not written to files; expected its folder, or a value made with `output`")
    return Path(files[0]).parent

"""Pages, scripts and styles that come with packages; nothing is fetched, and nothing else is ever opened for the page."""

import gzip
import hashlib
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from flask import Response, abort, request

PLOTLY = "plotly.min.js"  # of the installed package, not copied into this one
TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}


class _Asset(NamedTuple):
    content: bytes
    packed: bytes  # the same, for a slow tunnel
    tag: str


def asset(name: str) -> Response:
    """A file of the page, as an answer."""
    if name not in _names():
        abort(404, f"The page has no file {name!r}.")
    found = _read(name)
    pack = "gzip" in request.accept_encodings
    response = Response(found.packed if pack else found.content, mimetype=TYPES[name.rsplit(".", 1)[-1]])
    response.vary.add("Accept-Encoding")
    if pack:
        response.content_encoding = "gzip"
    response.set_etag(f"{found.tag}{'-gzip' if pack else ''}")
    return response.make_conditional(request)  # type: ignore[return-value]


def page(name: str) -> Response:
    """A page that is never taken from the browser's cache."""
    return Response(_read(name).content, mimetype="text/html", headers={"Cache-Control": "no-store"})


@cache
def _names() -> frozenset[str]:
    own = (file.name for file in (files("panther.viewer") / "static").iterdir())
    return frozenset(name for name in (*own, PLOTLY) if name.rsplit(".", 1)[-1] in TYPES)


@cache
def _read(name: str) -> _Asset:
    place = files("plotly") / "package_data" if name == PLOTLY else files("panther.viewer") / "static"
    content = (place / name).read_bytes()
    return _Asset(content, gzip.compress(content, 6, mtime=0), hashlib.sha256(content).hexdigest()[:16])

"""The Flask application of the viewer: files of the page, access, and answers without paths of the server."""

import gzip
import hmac
import logging
import math
import mimetypes
import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, is_dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from flask import Blueprint, Flask, Response, abort, jsonify, request
from flask.json.provider import DefaultJSONProvider
from pydantic import ValidationError
from werkzeug.exceptions import HTTPException

from panther.errors import InputError
from panther.viewer.address import LOOPBACK, machine_names, parse_address
from panther.viewer.pages.cohort import cohort_routes
from panther.viewer.pages.patch import patch_routes
from panther.viewer.pages.prototypes import prototype_routes
from panther.viewer.pages.slide import slide_routes
from panther.viewer.pages.study import study_routes
from panther.viewer.queries import describe_problem
from panther.viewer.workbench import BusyError, InProgressError, UnknownError, Workbench, as_sentence

PAGES = (slide_routes, patch_routes, prototype_routes, cohort_routes, study_routes)
PLOTLY = "plotly.min.js"  # of the installed package, not copied into this one
READING = ("GET", "HEAD")
# charts set style attributes, so styles may be inline; scripts may not
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; object-src 'none'"
)
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "private, no-cache",
}
HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(:\d{1,5})?", re.IGNORECASE)
LARGEST = 4 << 20  # bytes of a request: a lasso around 100,000 slides
REMEMBERED = 1000  # messages in the log of the terminal
STEP = r"""[^/\\\s'"`,;:()<>]+[/\\]"""  # a folder in the middle of a text; a blank ends the path
START = r"(?<![\w.~/\\-])"

logger = logging.getLogger(__name__)


def asset(name: str) -> Response:
    """A file of the page."""
    if name not in _assets():
        abort(404, f"the page has no file {name!r}")
    plain, packed = _read_asset(name)
    is_packed = "gzip" in request.accept_encodings  # for slow connections
    response = Response(packed if is_packed else plain, mimetype=mimetypes.guess_type(name)[0])
    response.vary.add("Accept-Encoding")
    if is_packed:
        response.content_encoding = "gzip"
    response.add_etag()
    return response.make_conditional(request)  # type: ignore[return-value]


@cache
def _assets() -> dict[str, Any]:
    static = {file.name: file for file in (files("panther.viewer") / "static").iterdir() if file.is_file()}
    return {**static, PLOTLY: files("plotly") / "package_data" / PLOTLY}


@cache
def _read_asset(name: str) -> tuple[bytes, bytes]:
    """A file, plain and packed."""
    content = _assets()[name].read_bytes()
    return content, gzip.compress(content, 6, mtime=0)


@dataclass(frozen=True)
class Guard:
    """Requirements on every request: host, origin, and the cookie that replaces the token."""

    hosts: frozenset[str] = frozenset(LOOPBACK)  # names of the server that requests may use
    proxies: frozenset[str] = frozenset()  # proxies among them, which may rewrite Host
    # The server listens on every address of the machine, so requests may use any of them. DNS rebinding points a name at another
    # machine; an IP address always belongs to its machine. So IP addresses are accepted and unknown names are not.
    any_address: bool = False
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)
    session: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)  # content of the cookie
    cookie: str = field(default_factory=lambda: f"panther-{secrets.token_hex(4)}")  # its name, one for each viewer
    framed_by: tuple[str, ...] = ()  # origins of notebooks that may show it in a frame

    def check(self) -> Response | None:
        """Refuse a request that may not be answered; the address with the token is answered by the cookie."""
        host = request.headers.get("Host", "")
        match = HOST.fullmatch(host)
        name = match["name"].lower().strip("[]") if match else ""
        if name not in self.hosts and not (self.any_address and parse_address(name)):
            abort(403, "The viewer does not accept this host name; `panther view FOLDER --allow-host NAME` adds it.")
        origin = request.headers.get("Origin")
        if origin is not None and not self._is_own_page(origin, host):
            abort(403, "The request came from another page; the viewer answers its own pages only.")
        if request.method == "GET" and request.path == "/" and _same(request.args.get("token", ""), self.token):
            return self._welcome()
        if not _same(request.cookies.get(self.cookie, ""), self.session):
            abort(403, "The address has no token, or an old one; open the address that `panther view` printed.")
        if request.method not in READING and (origin is None or not request.is_json):
            abort(403, "Changes come from the viewer's own page only.")
        return None

    def _is_own_page(self, origin: str, host: str) -> bool:
        """Whether an origin is that of the viewer's own pages; another port of this machine is not."""
        with suppress(ValueError):
            parts = urlsplit(origin)
            return parts.netloc == host or parts.hostname in self.proxies
        return False

    def _welcome(self) -> Response:
        """Set the cookie, with a page that leads to the viewer without the token.

        Not a redirect: a browser that comes by a link of another site (a mail, a notebook) would follow it without the cookie,
        which is for requests of this site only.
        """
        response = Response(_read_asset("enter.html")[0], mimetype="text/html", headers={"Cache-Control": "no-store"})
        # No path: the browser takes the folder of the address, whatever a proxy has put before it, so that other servers of the host
        # do not get the cookie. Not Secure: the viewer itself speaks plain http, on this machine or behind a proxy.
        response.set_cookie(self.cookie, self.session, httponly=True, samesite="Strict", path=None)
        return response

    def harden(self, response: Response) -> Response:
        """Add the headers that every answer has."""
        frames = " ".join(("'self'", *self.framed_by))
        response.headers["Content-Security-Policy"] = f"{POLICY}; frame-ancestors {frames}"
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        return response


def known_hosts(host: str, more: Iterable[str] = ()) -> frozenset[str]:
    """Host names that requests to a server on ``host`` may use."""
    names = {*LOOPBACK, host, *more, *(() if host in LOOPBACK else machine_names())}
    return frozenset(name.lower().strip("[]") for name in names)


def _same(text: str, secret: str) -> bool:
    return hmac.compare_digest(text.encode("utf-8", "replace"), secret.encode())


def path_redactor(folders: Iterable[Path] = ()) -> Callable[[str], str]:
    """Function that keeps of every absolute path in a text its last part: `/data/job/S1.tif: damaged` is about `S1.tif`.

    ``folders`` are known to be paths whatever letters they hold. Messages that it shortens are logged in full, once.
    """
    known = {str(place) for folder in folders if folder.is_absolute() for place in (folder, folder.parent)} - {"/"}
    places = "|".join(re.escape(place) for place in sorted(known, key=len, reverse=True)) or r"\b\B"
    path = re.compile(rf"{START}(?:(?:{places})[/\\](?:{STEP})*|/(?:{STEP})+)")
    logged: set[str] = set()

    def redact(text: str) -> str:
        short = path.sub("", text) if "/" in text or "\\" in text else text
        if short != text and ": " in text and text not in logged and len(logged) < REMEMBERED:
            logged.add(text)
            logger.warning("%s", text)
        return short

    return redact


def json_ready(value: Any, redact: Callable[[str], str]) -> Any:
    """An answer for JSON: without paths, except in people's notes on prototypes, and null for what is not a finite number."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {json_ready(k, redact): v if k == "note" else json_ready(v, redact) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_ready(item, redact) for item in value]
    if isinstance(value, (np.generic, np.ndarray)):
        return json_ready(value.tolist(), redact)
    return json_ready(asdict(value), redact) if is_dataclass(value) and not isinstance(value, type) else value


def make_app(bench: Workbench, guard: Guard) -> Flask:
    """Application for one workbench."""
    app = Flask("panther.viewer", static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = LARGEST
    app.config["PROVIDE_AUTOMATIC_OPTIONS"] = False  # no OPTIONS for other origins
    roots = bench.contents.roots
    redact = path_redactor(() if roots is None else (*roots.places, *roots.as_given))

    class Provider(DefaultJSONProvider):
        sort_keys = False

        def dumps(self, obj: Any, **options: Any) -> str:
            return super().dumps(json_ready(obj, redact), **options)

    def message(error: Exception) -> Any:
        """JSON with one sentence; as text for a browser that opens the address itself."""
        text, code = _describe(error)
        sentence = as_sentence(text)
        if request.accept_mimetypes.best_match(("application/json", "text/html")) == "text/html":
            return Response(f"{redact(sentence)}\n", code, mimetype="text/plain")
        return jsonify(error=sentence), code

    app.json = Provider(app)
    app.before_request(guard.check)
    app.after_request(guard.harden)
    app.register_blueprint(_frame_routes(bench, guard))
    for page in PAGES:
        app.register_blueprint(page(bench))
    app.register_error_handler(InProgressError, lambda running: {"progress": running.progress})
    app.register_error_handler(Exception, message)
    return app


def _frame_routes(bench: Workbench, guard: Guard) -> Blueprint:
    """Routes of the frame around all pages: its files, the contents of the opened folder, the link."""
    routes = Blueprint("frame", __name__)
    routes.get("/")(lambda: asset("index.html"))
    routes.get("/static/<name>")(asset)

    @routes.get("/plotly.js")
    def plotly() -> Response:
        return asset(PLOTLY)

    @routes.get("/api/contents")
    def contents() -> dict[str, Any]:
        contents = bench.contents
        slides = [
            {"name": name, "patient": slide.patient, "image": bool(slide.image), "features": slide.features is not None}
            for name, slide in contents.slides.items()
        ]
        return {
            "title": contents.title,
            "slides": slides,
            "prototypes": [{"name": name, "count": len(bench.prototypes(name))} for name in contents.prototypes],
            "models": list(contents.models),
            "studies": list(contents.studies),
            "notes": contents.notes,
        }

    @routes.get("/api/link")
    def link() -> Any:
        return {"token": guard.token}  # for links to share

    return routes


def _describe(error: Exception) -> tuple[str, int]:
    """One line and a status for an error."""
    if isinstance(error, HTTPException):
        return error.description or "The viewer cannot answer this.", error.code or 500
    if isinstance(error, ValidationError):
        return describe_problem(error.errors(include_url=False)), 422
    if isinstance(error, InputError):
        return str(error), {UnknownError: 404, BusyError: 503}.get(type(error), 422)
    if isinstance(error, RecursionError):
        return "request: found deep nesting, expected a flat object", 400
    if isinstance(error, OSError):
        return f"{error.filename or 'system'}: {error.strerror or error}", 422
    logger.error("The viewer could not answer %s.", request.path, exc_info=error)
    return f"unexpected {type(error).__name__}: {error}; see the terminal of `panther view`", 500

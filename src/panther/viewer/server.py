"""The Flask application of the viewer: files of the page, access, and messages without paths of the server."""

import gzip
import hashlib
import hmac
import logging
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from flask import Blueprint, Flask, Response, abort, jsonify, request
from flask.json.provider import DefaultJSONProvider
from werkzeug.exceptions import HTTPException

from panther.errors import InputError
from panther.viewer.address import LOOPBACK, is_address, own_names
from panther.viewer.pages import PAGES
from panther.viewer.workbench import UnknownError, Workbench

PLOTLY = "plotly.min.js"  # of the installed package, not copied into this one
TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
COOKIE = "panther"
READING = ("GET", "HEAD")
# charts set style attributes, so styles may be inline; scripts may not
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "object-src 'none'",
    )
)
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "private, no-cache",
}
HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(:\d{1,5})?", re.IGNORECASE)
SENTENCES = frozenset({"error", "failures", "notes", "problem", "why"})  # fields of answers that hold them
REMEMBERED = 1000  # sentences that the terminal has had
STEP = r"""[^/\\\s'"`,;:()<>]+"""  # a folder in the middle of a sentence; one that holds a blank ends it
START = r"(?<![\w.~/\\-])"
PATH = re.compile(rf"{START}/(?:{STEP}/)+")  # a path from the root on, without its last part

logger = logging.getLogger(__name__)
LARGEST = 4 << 20  # bytes of a request: a lasso around 100,000 slides


class _Asset(NamedTuple):
    content: bytes
    packed: bytes  # the same, for a slow tunnel
    tag: str


def asset(name: str) -> Response:
    """A file of the page, as an answer."""
    if name not in _names():
        abort(404, f"The page has no file {name!r}.")
    file = _read_asset(name)
    pack = "gzip" in request.accept_encodings
    response = Response(file.packed if pack else file.content, mimetype=TYPES[name.rsplit(".", 1)[-1]])
    response.vary.add("Accept-Encoding")
    if pack:
        response.content_encoding = "gzip"
    response.set_etag(f"{file.tag}{'-gzip' if pack else ''}")
    return response.make_conditional(request)  # type: ignore[return-value]


def page(name: str) -> Response:
    """A page that is never taken from the browser's cache."""
    return Response(_read_asset(name).content, mimetype="text/html", headers={"Cache-Control": "no-store"})


@cache
def _names() -> frozenset[str]:
    own = (file.name for file in (files("panther.viewer") / "static").iterdir())
    return frozenset(name for name in (*own, PLOTLY) if name.rsplit(".", 1)[-1] in TYPES)


@cache
def _read_asset(name: str) -> _Asset:
    place = files("plotly") / "package_data" if name == PLOTLY else files("panther.viewer") / "static"
    content = (place / name).read_bytes()
    return _Asset(content, gzip.compress(content, 6, mtime=0), hashlib.sha256(content).hexdigest()[:16])


def new_secret() -> str:
    """A random secret of an access link."""
    return secrets.token_urlsafe(24)


@dataclass(frozen=True)
class Guard:
    """What a request must show."""

    hosts: frozenset[str] = frozenset(LOOPBACK)  # names of the server that requests may use
    proxies: frozenset[str] = frozenset()  # those of them under which a proxy shows it; it may send another Host on
    # It listens on every address of the machine, so requests may use any of them. Names are what DNS rebinding turns over to another
    # machine: a page's address that is a number stays with its machine, so numbers are let in and unknown names are not.
    any_address: bool = False
    token: str = field(default_factory=new_secret, repr=False)
    session: str = field(default_factory=new_secret, repr=False)  # what the cookie holds
    # two viewers on one host have one each
    cookie: str = field(default_factory=lambda: f"{COOKIE}-{secrets.token_hex(4)}")
    framed_by: tuple[str, ...] = ()  # origins of notebooks that may show it in a frame

    def protect(self, app: Flask) -> None:
        """Check every request before anything else looks at it."""
        app.before_request(self._check)
        app.after_request(self._harden)

    def _check(self) -> Response | None:
        if not self._knows(_host_name(_host())):
            abort(
                403, "The viewer is not known under this host name; `panther view FOLDER --allow-host NAME` lets it in."
            )
        origin = request.headers.get("Origin")
        if origin is not None and not self._own(origin):
            abort(403, "Another page asked; the viewer answers its own pages only.")
        if request.method == "GET" and request.path == "/" and _same(request.args.get("token", ""), self.token):
            return self._welcome()
        if not _same(request.cookies.get(self.cookie, ""), self.session):
            abort(
                403,
                "The address has no token, or that of an earlier start; open the address that `panther view` printed.",
            )
        if request.method not in READING and (origin is None or not request.is_json):
            abort(403, "Changes come from the viewer's own page only.")
        return None

    def _knows(self, name: str) -> bool:
        return name in self.hosts or (self.any_address and is_address(name))

    def _own(self, origin: str) -> bool:
        """Whether it is the origin of the viewer's own pages; another port of this machine is not."""
        try:
            asked = urlsplit(origin)
            return asked.netloc == _host() or (asked.hostname or "") in self.proxies
        except ValueError:
            return False

    def _welcome(self) -> Response:
        """Give the cookie, and a page that goes on to the viewer without the token.

        Not a redirect: a browser that comes by a link of another site (a mail, a notebook) would follow it without the cookie,
        which is for this site's own requests only.
        """
        response = page("enter.html")
        # No path: the browser takes the folder of the address, whatever a proxy has put before it, so that what else the host
        # shows does not get the cookie. Not Secure: the viewer itself speaks plain http, on this machine or behind a proxy.
        response.set_cookie(self.cookie, self.session, httponly=True, samesite="Strict", path=None)
        return response

    def _harden(self, response: Response) -> Response:
        frames = " ".join(("'self'", *self.framed_by))
        response.headers["Content-Security-Policy"] = f"{POLICY}; frame-ancestors {frames}"
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        return response


def known_hosts(host: str, more: Iterable[str] = ()) -> frozenset[str]:
    """Host names that requests to a server on ``host`` may use."""
    names = {*LOOPBACK, host, *more, *(() if host in LOOPBACK else own_names())}
    return frozenset(name.lower().strip("[]") for name in names)


def _host() -> str:
    """Host header as it came; without one nothing is known."""
    return request.headers.get("Host", "")


def _host_name(host: str) -> str:
    """Name in a Host header, without its port."""
    found = HOST.fullmatch(host)
    return found["name"].lower().strip("[]") if found else ""


def _same(given: str, secret: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), secret.encode())


class Discretion:
    """Takes folders out of sentences. Threads may share it."""

    def __init__(self, places: Iterable[Path] = ()) -> None:
        # long ones first: a folder that was opened may lie in another one; a whole disk is none to be cut off
        known = sorted((place for place in set(places) if len(place.parts) > 2), key=lambda one: -len(str(one)))
        self._places = [(_below(place), _itself(place), place.name) for place in known if place.is_absolute()]
        self._told: set[str] = set()

    def sentence(self, text: str) -> str:
        """The sentence with names of files alone: `/data/job/S1.tif: it is damaged.` is about `S1.tif`."""
        found = text
        for below, itself, name in self._places:
            found = itself.sub(lambda _, name=name: name, below.sub("", found))  # type: ignore[misc]
        found = PATH.sub("…/", found)
        if found != text and text not in self._told and len(self._told) < REMEMBERED:
            self._told.add(text)
            logger.warning("%s", text)
        return found

    def answer(self, value: Any) -> Any:
        """An answer, with its sentences taken care of."""
        if not isinstance(value, Mapping):
            return value
        return {key: self._all(one) if key in SENTENCES else self.answer(one) for key, one in value.items()}

    def _all(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.sentence(value)
        if isinstance(value, Mapping):
            return {key: self._all(one) for key, one in value.items()}
        return [self._all(one) for one in value] if isinstance(value, (list, tuple)) else value

    def applied_to(self, app: Flask) -> None:
        """Let every answer in JSON go through it, also those of pages that are added later."""
        discretion = self

        class Provider(DefaultJSONProvider):
            sort_keys = False

            def dumps(self, obj: Any, **options: Any) -> str:
                return super().dumps(discretion.answer(obj), **options)

        app.json = Provider(app)


def _below(place: Path) -> re.Pattern[str]:
    """What lies below a folder: all of a path but its last part."""
    return re.compile(rf"{START}{re.escape(str(place))}(?:[/\\]{STEP})*[/\\]")


def _itself(place: Path) -> re.Pattern[str]:
    return re.compile(rf"{START}{re.escape(str(place))}(?![\w.-]*\w)")


def make_app(bench: Workbench, guard: Guard) -> Flask:
    """Application for one workbench."""
    app = Flask("panther.viewer", static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = LARGEST
    app.config["PROVIDE_AUTOMATIC_OPTIONS"] = False  # no OPTIONS for other origins
    roots = bench.contents.roots
    discretion = Discretion(() if roots is None else (*roots.places, *roots.as_given))
    discretion.applied_to(app)
    guard.protect(app)
    app.register_blueprint(_frame(bench, guard))
    for page in PAGES:
        app.register_blueprint(page(bench))
    app.register_error_handler(Exception, partial(_sentence, discretion))
    return app


def _frame(bench: Workbench, guard: Guard) -> Blueprint:
    """Routes of the page that holds all others: its files, the contents of the opened folder, the link."""
    routes = Blueprint("frame", __name__)

    @routes.get("/")
    def index() -> Response:
        return asset("index.html")

    @routes.get("/static/<name>")
    def static(name: str) -> Response:
        return asset(name)

    @routes.get("/plotly.js")
    def plotly() -> Response:
        return asset(PLOTLY)

    @routes.get("/api/contents")
    def contents() -> dict[str, Any]:
        contents = bench.contents
        return {
            "title": contents.title,
            "slides": [
                {
                    "name": one.name,
                    "patient": one.patient,
                    "image": one.image is not None,
                    "features": one.features is not None,
                }
                for one in contents.slides.values()
            ],
            "prototypes": [{"name": name, "count": len(bench.prototypes(name))} for name in contents.prototypes],
            "models": list(contents.models),
            "studies": list(contents.studies),
            "embeddings": contents.embeddings is not None,
            "columns": [] if contents.table is None else [str(name) for name in contents.table.rows.columns],
            "notes": list(contents.notes),
        }

    @routes.get("/api/link")
    def link() -> Any:
        return {"token": guard.token}  # for a link that a colleague can open

    return routes


def _sentence(discretion: Discretion, error: Exception) -> Any:
    """What the page shows instead: a sentence. A person who opens an address by hand gets it as text."""
    sentence, code = _said(error)
    if request.accept_mimetypes.best_match(("application/json", "text/html")) == "text/html":
        return Response(f"{discretion.sentence(sentence)}\n", code, mimetype="text/plain")
    return jsonify(error=sentence), code


def _said(error: Exception) -> tuple[str, int]:
    if isinstance(error, HTTPException):
        return error.description or "The viewer cannot answer this.", error.code or 500
    if isinstance(error, UnknownError):
        return str(error), 404
    if isinstance(error, InputError):
        return str(error), 422
    if isinstance(error, RecursionError):
        return "The request is nested too deeply; expected a flat object.", 400
    if isinstance(error, OSError):
        return f"{error.filename or 'The system'}: {error.strerror or error}.", 422
    logger.error("The viewer could not answer %s.", request.path, exc_info=error)
    return f"Unexpected {type(error).__name__}: {error}. The window of `panther view` says where.", 500

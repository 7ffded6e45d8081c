"""Access to the viewer, the files of its page, and the page that is shown while the folder is being read.

Nothing here needs the package's own rooms: the page is there before they are imported.
"""

import gzip
import hmac
import mimetypes
import re
import secrets
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit

from flask import Flask, Response, abort, jsonify, request
from werkzeug.exceptions import HTTPException

from panther.viewer.address import LOOPBACK, machine_names, parse_address

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


def asset(name: str) -> Response:
    """A file of the page."""
    if name != PLOTLY and name not in _assets():
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
    return static


@cache
def _read_asset(name: str) -> tuple[bytes, bytes]:
    """A file, plain and packed."""
    content = (_assets()[name] if name != PLOTLY else files("plotly") / "package_data" / PLOTLY).read_bytes()
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


def guarded(name: str, guard: Guard) -> Flask:
    """An application with the files of the page, behind the guard."""
    app = Flask(name, static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = LARGEST
    app.config["PROVIDE_AUTOMATIC_OPTIONS"] = False  # no OPTIONS for other origins
    app.before_request(guard.check)
    app.after_request(guard.harden)
    app.get("/", endpoint="page")(lambda: asset("index.html"))
    app.get("/static/<name>")(asset)
    app.get("/plotly.js", endpoint="plotly")(lambda: asset(PLOTLY))
    return app


def waiting_app(guard: Guard, has_failed: Callable[[], bool]) -> Flask:
    """The page before its folder is read: it asks again until it is."""
    app = guarded("panther.viewer.waiting", guard)

    @app.route("/<path:_>", methods=["GET", "POST"])
    def wait(_: str) -> Any:
        text = "The folder cannot be opened; see the terminal of `panther view`."
        return jsonify(error=text if has_failed() else "The folder is being read.", loading=not has_failed()), 503

    @app.errorhandler(HTTPException)
    def refuse(error: HTTPException) -> Any:
        return Response(f"{error.description}\n", error.code or 500, mimetype="text/plain")

    return app

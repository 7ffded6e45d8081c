"""Who may ask: a token in the first address, a cookie afterwards, from the page that this server gave and under its own name."""

import hmac
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from flask import Flask, Response, abort, request

from panther.viewer.assets import page
from panther.viewer.machine import LOOPBACK, is_address, own_names

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


def new_secret() -> str:
    """A secret that nobody guesses."""
    return secrets.token_urlsafe(24)


@dataclass(frozen=True)
class Guard:
    """What a request must show."""

    hosts: frozenset[str] = frozenset(LOOPBACK)  # names under which the server may be asked
    proxies: frozenset[str] = frozenset()  # those of them under which a proxy shows it; it may send another Host on
    # It listens on every address of the machine, so it may be asked under any. Names are what DNS rebinding turns over to another
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
    """Names under which a server that listens on ``host`` may be asked."""
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

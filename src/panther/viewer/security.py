"""Who may ask: a token in the first address, a cookie afterwards, from the page that this server gave and under its own name."""

import hmac
import secrets
import socket
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from flask import Flask, Response, abort, redirect, request

LOOPBACK = ("localhost", "127.0.0.1", "::1")
COOKIE = "panther"
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
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "private, no-cache",
}


def new_secret() -> str:
    """A secret that nobody guesses."""
    return secrets.token_urlsafe(24)


@dataclass(frozen=True)
class Guard:
    """What a request must show."""

    hosts: frozenset[str] = frozenset(LOOPBACK)  # names under which the server may be asked
    token: str = field(default_factory=new_secret, repr=False)
    session: str = field(default_factory=new_secret, repr=False)  # what the cookie holds
    cookie: str = field(
        default_factory=lambda: f"{COOKIE}-{secrets.token_hex(4)}"
    )  # two viewers on one host have one each
    framed_by: tuple[str, ...] = ()  # origins of notebooks that may show it in a frame

    def protect(self, app: Flask) -> None:
        """Check every request before anything else looks at it."""
        app.before_request(self._check)
        app.after_request(self._harden)

    def _check(self) -> Response | None:
        if _host_name(request.host) not in self.hosts:
            abort(403, "The viewer is not known under this host name; start it with --allow-host NAME to use it there.")
        origin = request.headers.get("Origin")
        if origin is not None and urlsplit(origin).netloc != request.host:
            abort(403, "Another page asked; the viewer answers its own pages only.")
        given = request.args.get("token")
        if given is not None and _same(given, self.token) and request.method == "GET":
            return self._welcome()
        if not _same(request.cookies.get(self.cookie, ""), self.session):
            abort(403, "The address lacks its token; open the address that `panther view` printed.")
        if request.method != "GET" and (origin is None or not request.is_json):
            abort(403, "Changes come from the viewer's own page only.")
        return None

    def _welcome(self) -> Response:
        """Give the cookie, and take the token out of the address bar; what follows # the browser keeps."""
        response = redirect("./", 303)  # relative, so that it holds behind a proxy
        response.autocorrect_location_header = False
        # no Secure: the viewer itself speaks plain http, on this machine or behind a proxy that does not
        response.set_cookie(self.cookie, self.session, httponly=True, samesite="Strict", path="/")
        return response  # type: ignore[return-value]

    def _harden(self, response: Response) -> Response:
        frames = " ".join(("'self'", *self.framed_by))
        response.headers["Content-Security-Policy"] = f"{POLICY}; frame-ancestors {frames}"
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        return response


def known_hosts(host: str, more: Iterable[str] = ()) -> frozenset[str]:
    """Names under which a server that listens on ``host`` may be asked."""
    names = {*LOOPBACK, host, *more}
    if host not in LOOPBACK:
        names |= {socket.gethostname(), socket.getfqdn()}
    return frozenset(name.lower().strip("[]") for name in names)


def _host_name(host: str) -> str:
    """Name in a Host header, without its port."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def _same(given: str, secret: str) -> bool:
    return hmac.compare_digest(given.encode(), secret.encode())

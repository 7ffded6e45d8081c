"""Addresses of the viewer: names of this machine, ports, prefixes of proxies."""

import os
import re
import socket
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any
from urllib.parse import urlsplit

from panther.errors import InputError

LOOPBACK = ("localhost", "127.0.0.1", "::1")
# set by JupyterHub: the path of this user's servers and, since version 5, their whole address
PREFIX, PUBLIC = "JUPYTERHUB_SERVICE_PREFIX", "JUPYTERHUB_PUBLIC_URL"
PLAIN_PATH = re.compile(r"(/[A-Za-z0-9._~@+=,:%-]+)*")
PLAIN_NAME = re.compile(r"[A-Za-z0-9_.-]+|\[?[0-9A-Fa-f:.]+\]?")


def parse_address(host: str) -> IPv4Address | IPv6Address | None:
    """IP address that a host is; None for a name."""
    with suppress(ValueError):
        return ip_address(host.strip("[]"))
    return None


def is_everywhere(host: str) -> bool:
    """Whether a server that listens there is reached under every address of the machine: 0.0.0.0, :: and other spellings of them."""
    address = parse_address(host)
    return address is not None and address.is_unspecified


def machine_names() -> list[str]:
    """Names of this machine, the most widely known one last."""
    name, whole = socket.gethostname().lower(), socket.getfqdn().lower()
    names = (name, whole) if whole.startswith(f"{name}.") else (whole, name)
    return list(dict.fromkeys(filter(None, (name.partition(".")[0], *names))))


@dataclass(frozen=True)
class ListenConfig:
    """Address that the viewer listens on, and under which it is reached."""

    host: str = "127.0.0.1"
    port: int = 0  # 0: any that is free
    prefix: str | None = None  # path under which a proxy shows it; None: Jupyter's, else none
    allow_hosts: tuple[str, ...] = ()  # names of proxies
    framed_by: tuple[str, ...] = ()  # origins of pages that may show it in a frame

    def __post_init__(self) -> None:
        for name in (self.host, *self.allow_hosts):
            if not PLAIN_NAME.fullmatch(name):
                raise InputError(f"host: found {name!r}, expected a name without scheme, port and path")
        if self.prefix is not None:
            checked_prefix(self.prefix)

    @property
    def proxies(self) -> frozenset[str]:
        """Names under which a proxy shows it."""
        public = urlsplit(os.environ.get(PUBLIC, "")).hostname
        return frozenset(name.lower().strip("[]") for name in (*self.allow_hosts, *([public] if public else [])))

    def path(self, port: int) -> str:
        """Prefix of all paths, as the browser sees it: empty, or with a slash before it and none behind."""
        if self.prefix is not None:
            return checked_prefix(self.prefix)
        hub = os.environ.get(PREFIX)
        return f"{checked_prefix(hub)}/proxy/{port}" if hub else ""

    def origin(self, port: int) -> str:
        """Scheme, host and port of the printed address."""
        public = urlsplit(os.environ.get(PUBLIC, ""))
        if self.prefix is None and public.netloc and os.environ.get(PREFIX):
            return f"{public.scheme}://{public.netloc}"
        host = self.host.strip("[]")
        if host in LOOPBACK or is_everywhere(host):
            host = "::1" if ":" in host else "127.0.0.1"  # a socket of one address family does not receive the other
        return _origin(host, port)

    def elsewhere(self, port: int) -> str:
        """Origin for other machines, if it listens on all addresses of this one and this one has a name."""
        name = machine_names()[-1] if is_everywhere(self.host) else "localhost"
        return "" if name.startswith("localhost") else _origin(name, port)

    def listen(self) -> socket.socket:
        """Bind the port."""
        listening = socket.socket(socket.AF_INET6 if ":" in self.host else socket.AF_INET, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_everywhere(self.host) and ":" in self.host and socket.has_dualstack_ipv6():
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)  # whatever the system's default is
        try:
            listening.bind((self.host.strip("[]"), self.port))
            listening.listen()  # here, because two sockets may bind one port until one of them listens
        except OSError as error:
            listening.close()
            raise InputError(f"cannot listen on {self.host}, port {self.port} ({error.strerror})") from error
        return listening


def _origin(host: str, port: int) -> str:
    host = host.strip("[]")
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def checked_prefix(prefix: str) -> str:
    """The path with a slash before it and none behind; characters with a meaning in addresses are refused."""
    inner = prefix.strip("/")
    path = f"/{inner}" if inner else ""
    if not PLAIN_PATH.fullmatch(path) or {".", ".."} & set(path.split("/")):
        raise InputError(f"prefix: found {prefix!r}, expected a path of an address such as /user/me/view")
    return path


def mount(prefix: str, application: Any) -> Any:
    """Answer under the prefix as well as without it: some proxies remove it."""
    last = prefix.rsplit("/", 1)[-1]

    def answer(environ: dict[str, Any], start: Any) -> Any:
        path = environ.get("PATH_INFO", "")
        if path == prefix:  # relative addresses need the slash
            query = environ.get("QUERY_STRING", "")
            start("308 Permanent Redirect", [("Location", f"{last}/{'?' if query else ''}{query}")])
            return [b""]
        if path.startswith(f"{prefix}/"):
            environ = {**environ, "PATH_INFO": path[len(prefix) :]}
        return application(environ, start)

    return answer if prefix else application

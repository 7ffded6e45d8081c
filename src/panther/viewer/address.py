"""Addresses of the viewer: names of this machine, ports, prefixes of proxies."""

import os
import re
import socket
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import psutil

from panther.errors import InputError

LOOPBACK = ("localhost", "127.0.0.1", "::1")
# what a JupyterHub sets: the path of this user's servers, and, since version 5, their whole address
PREFIX, PUBLIC = "JUPYTERHUB_SERVICE_PREFIX", "JUPYTERHUB_PUBLIC_URL"
PLAIN_PATH = re.compile(r"(/[A-Za-z0-9._~@+=,:%-]+)*")
PLAIN_NAME = re.compile(r"[A-Za-z0-9_.-]+|\[?[0-9A-Fa-f:.]+\]?")


def is_address(name: str) -> bool:
    """Whether a host is given by its number, not by a name."""
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def is_everywhere(host: str) -> bool:
    """Whether a server that listens there is reached under every address of the machine: 0.0.0.0, :: and other spellings of them."""
    return is_address(host) and ip_address(host.strip("[]")).is_unspecified


def own_names() -> list[str]:
    """Names of this machine: its own, the whole one, and the short one."""
    name, whole = socket.gethostname(), socket.getfqdn()
    return list(dict.fromkeys(found.lower() for found in (name, whole, name.partition(".")[0]) if found))


def name_for_others() -> str | None:
    """The name that others may know this machine by, the whole one where it has one; None where it has none of its own."""
    name, whole = socket.gethostname().lower(), socket.getfqdn().lower()
    best = whole if whole.startswith(f"{name}.") else name
    return None if not best or best.startswith("localhost") else best


def own_addresses(families: tuple[int, ...] = (socket.AF_INET, socket.AF_INET6)) -> list[str]:
    """Addresses that others may know this machine by, in the order of the families: of networks that are up, none of which leads only back."""
    with suppress(OSError):
        up = {name for name, stats in psutil.net_if_stats().items() if stats.isup}
        cards = [card for name, found in psutil.net_if_addrs().items() if name in up for card in found]
        given = [card.address for family in families for card in cards if card.family == family]
        return [address for address in dict.fromkeys(given) if _leads_here(address)]
    return []


def _leads_here(address: str) -> bool:
    try:
        found = ip_address(address)
    except ValueError:
        return False
    return not (found.is_loopback or found.is_link_local or found.is_unspecified)


@dataclass(frozen=True)
class Where:
    """Where the viewer listens, and under which address it is reached."""

    host: str = "127.0.0.1"
    port: int = 0  # 0: any that is free
    prefix: str | None = None  # path under which a proxy shows it; None: what Jupyter says, else none
    allow_hosts: tuple[str, ...] = ()  # names of proxies
    framed_by: tuple[str, ...] = ()  # origins of pages that may show it in a frame

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise InputError(f"Port {self.port}: ports are numbers from 1 to 65535; 0 takes a free one.")
        for name in (self.host, *self.allow_hosts):
            if not PLAIN_NAME.fullmatch(name):
                raise InputError(f"{name!r} is not the name of a host; give it without scheme, port and path.")
        if self.prefix is not None:
            checked_prefix(self.prefix)

    @property
    def proxies(self) -> frozenset[str]:
        """Names under which a proxy shows it."""
        public = urlsplit(os.environ.get(PUBLIC, "")).hostname
        return frozenset(name.lower().strip("[]") for name in (*self.allow_hosts, *([public] if public else [])))

    def path(self, port: int) -> str:
        """Path before all addresses, as the browser sees it: empty, or with a slash before it and none behind."""
        if self.prefix is not None:
            return checked_prefix(self.prefix)
        hub = os.environ.get(PREFIX)
        return f"{checked_prefix(hub)}/proxy/{port}" if hub else ""

    def origin(self, port: int) -> str:
        """Scheme, host and port, as far as they are known here."""
        public = urlsplit(os.environ.get(PUBLIC, ""))
        if self.prefix is None and public.netloc and os.environ.get(PREFIX):
            return f"{public.scheme}://{public.netloc}"
        own = "::1" if ":" in self.host else "127.0.0.1"  # a socket for one kind of address does not hear the other
        return _origin(own if self.host.strip("[]") in LOOPBACK or is_everywhere(self.host) else self.host, port)

    def others(self, port: int) -> list[str]:
        """The same for people at other machines, where they need another one: as far as this machine knows its addresses and its name."""
        if not is_everywhere(self.host):
            return []
        own_kind = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        found = own_addresses((socket.AF_INET, socket.AF_INET6) if self._both_kinds() else (own_kind,))
        name = name_for_others()
        return [_origin(host, port) for host in (*found, *([name] if name else []))]

    def _both_kinds(self) -> bool:
        """Whether a socket on every address hears both kinds of them."""
        return is_everywhere(self.host) and ":" in self.host and socket.has_dualstack_ipv6()

    def listen(self) -> socket.socket:
        """Bind the port."""
        listening = socket.socket(socket.AF_INET6 if ":" in self.host else socket.AF_INET, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if self._both_kinds():
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)  # whatever the system is set to
        try:
            listening.bind((self.host.strip("[]"), self.port))
            listening.listen()  # here, because two sockets may bind one port until one of them listens
        except OSError as error:
            listening.close()
            raise InputError(
                f"The viewer cannot listen on {self.host}, port {self.port} ({error.strerror}); choose another `port=` or `host=`."
            ) from error
        return listening


def _origin(host: str, port: int) -> str:
    host = host.strip("[]")
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def checked_prefix(prefix: str) -> str:
    """The path with a slash before it and none behind; what would not survive in an address is refused."""
    inner = prefix.strip("/")
    path = f"/{inner}" if inner else ""
    if not PLAIN_PATH.fullmatch(path) or {".", ".."} & set(path.split("/")):
        raise InputError(f"{prefix!r} is not a path of an address; give one like /user/me/view.")
    return path


def below(prefix: str, application: Any) -> Any:
    """Answer under the prefix as well as without it: some proxies take it off."""
    last = prefix.rsplit("/", 1)[-1]

    def answer(environ: dict[str, Any], start: Any) -> Any:
        path = environ.get("PATH_INFO", "")
        if prefix and path == prefix:  # relative addresses need the slash
            query = environ.get("QUERY_STRING", "")
            start("308 Permanent Redirect", [("Location", f"{last}/{'?' if query else ''}{query}")])
            return [b""]
        if prefix and path.startswith(prefix + "/"):
            environ = {**environ, "PATH_INFO": path[len(prefix) :]}
        return application(environ, start)

    return answer

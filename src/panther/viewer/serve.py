"""Starting and stopping the viewer: one process, one port, one address."""

import os
import socket
import threading
import webbrowser
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from panther.errors import InputError
from panther.viewer.contents import Given, find_contents
from panther.viewer.security import LOOPBACK, Guard, known_hosts
from panther.viewer.server import make_app
from panther.viewer.workbench import Workbench

THREADS = 8  # requests answered at a time; the others wait their turn
PREFIX = "JUPYTERHUB_SERVICE_PREFIX"  # where a JupyterHub puts this user's servers


@dataclass(frozen=True)
class Where:
    """Where the viewer listens, and under which address it is reached."""

    host: str = "127.0.0.1"
    port: int = 0  # 0: any that is free
    prefix: str | None = None  # path under which a proxy shows it; None: what Jupyter says, else none
    allow_hosts: tuple[str, ...] = ()


class Viewer:
    """A running viewer."""

    def __init__(self, bench: Workbench, where: Where = Where()) -> None:
        from waitress.server import create_server

        self.where = where
        self.guard = Guard(known_hosts(where.host, where.allow_hosts))
        listening = _listening(where)
        self.port = listening.getsockname()[1]
        self.prefix = _prefix(where.prefix, self.port)
        application = _below(self.prefix, make_app(bench, self.guard))
        self._server: Any = create_server(
            application, sockets=[listening], threads=THREADS, ident=None, connection_limit=500
        )
        self._thread = threading.Thread(target=self._server.run, name="viewer", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """Address with its token."""
        host = "127.0.0.1" if self.where.host in (*LOOPBACK, "0.0.0.0", "::") else self.where.host
        return f"http://{host}:{self.port}{self.prefix}/?token={self.guard.token}"

    def open_browser(self) -> bool:
        """Show it in a browser, where there is one."""
        return webbrowser.open(self.address)

    def wait(self) -> None:
        """Until somebody stops it."""
        while self._thread.is_alive():
            self._thread.join(1.0)

    def close(self) -> None:
        """Stop answering."""
        self._server.close()
        self._server.trigger.pull_trigger() if hasattr(self._server, "trigger") else None
        self._server.task_dispatcher.shutdown(cancel_pending=True, timeout=2)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _listening(where: Where) -> socket.socket:
    family = socket.AF_INET6 if ":" in where.host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((where.host, where.port))
    except (OSError, OverflowError) as error:
        found.close()
        raise InputError(
            f"The viewer cannot listen on {where.host}:{where.port} ({error}); choose another --port or --host."
        ) from error
    return found


def _prefix(given: str | None, port: int) -> str:
    if given is None:
        service = os.environ.get(PREFIX)
        given = f"{service.rstrip('/')}/proxy/{port}" if service else ""
    given = given.strip("/")
    return f"/{given}" if given else ""


def _below(prefix: str, application: Any) -> Any:
    """Answer under the prefix as well as without it: some proxies take it off."""

    def answer(environ: dict[str, Any], start: Any) -> Any:
        path = environ.get("PATH_INFO", "")
        if prefix and (path == prefix or path.startswith(prefix + "/")):
            if path == prefix:  # relative addresses need the slash
                query = environ.get("QUERY_STRING", "")
                start(
                    "308 Permanent Redirect",
                    [("Location", prefix.rsplit("/", 1)[-1] + "/" + (f"?{query}" if query else ""))],
                )
                return [b""]
            environ = {**environ, "PATH_INFO": path[len(prefix) :]}
        return application(environ, start)

    return answer


def open_viewer(place: Path, given: Given, where: Where, executor: Any = None, settings: Any = None) -> Viewer:
    """Find what there is below ``place`` and serve it."""
    return Viewer(Workbench(find_contents(place, given), settings, executor), where)


def open_paths(paths: Iterable[Path | str]) -> tuple[Path, ...]:
    """Paths of strings."""
    return tuple(Path(path) for path in paths)

"""Starting and stopping the viewer: one process, one port, one address."""

import html
import logging
import os
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

from panther.machine import start_early
from panther.viewer.address import ListenConfig, is_everywhere, mount
from panther.viewer.guard import LARGEST, Guard, known_hosts, waiting_app

if TYPE_CHECKING:
    from panther.viewer.workbench import Workbench

THREADS = 16  # requests answered at a time; the others wait their turn
CONNECTIONS = 500
LAST_ANSWERS = 2.0  # seconds for requests under way when the viewer is closed
PRELOAD = ("panther.engine", "h5py", "panther.viewer.workbench")  # imported by worker processes at their start
HEIGHT = 800  # pixels of the frame in a notebook


class Viewer:
    """A running viewer, of a workbench or of what opens one while the page waits for it.

    ``address`` is what to open in a browser; ``close()`` ends it. At the end of a notebook's cell it shows itself.
    """

    def __init__(
        self,
        bench: "Workbench | Callable[[ExitStack], Workbench]",
        config: ListenConfig = ListenConfig(),
        listening: socket.socket | None = None,
    ) -> None:
        from waitress.server import create_server

        self.config = config
        self._stack = ExitStack()  # closed with it
        listening = listening or config.listen()
        self.port = listening.getsockname()[1]
        self.prefix = config.path(self.port)
        hosts = known_hosts(config.host, config.proxies)
        self.guard = Guard(hosts, config.proxies, any_address=is_everywhere(config.host), framed_by=config.framed_by)
        logging.getLogger("waitress").setLevel(logging.ERROR)  # it would report every request that waits
        self._problem: BaseException | None = None
        self._app: Any = waiting_app(self.guard, lambda: self._problem is not None)
        if not callable(bench):
            self._show(bench)
        self._server: Any = create_server(
            mount(self.prefix, lambda environ, start: self._app(environ, start)),
            sockets=[listening],
            threads=THREADS,
            ident=None,
            connection_limit=CONNECTIONS,
            asyncore_use_poll=True,
            max_request_body_size=LARGEST,
            channel_request_lookahead=1,  # a search stops when the browser disconnects
        )
        self._thread = threading.Thread(target=self._server.run, name="viewer", daemon=True)
        self._thread.start()
        self._loading = threading.Thread(target=self._load, args=(bench,), name="loading", daemon=True)
        if callable(bench):
            self._loading.start()

    def _load(self, load: "Callable[[ExitStack], Workbench]") -> None:
        try:
            self._show(load(self._stack))
        except BaseException as error:
            self._problem = error

    def _show(self, bench: "Workbench") -> None:
        from panther.viewer.server import make_app

        self._app = make_app(bench, self.guard)
        self._stack.callback(bench.close)

    def wait(self) -> Self:
        """Wait until the folder is read; what it cannot be opened for is raised."""
        if self._loading.ident is not None:
            self._loading.join()
        if self._problem is not None:
            self.close()
            raise self._problem
        return self

    @property
    def address(self) -> str:
        """Address with its token."""
        return f"{self.config.origin(self.port)}{self._path}"

    @property
    def elsewhere(self) -> str:
        """Address for other machines, with the token, if it listens on all addresses of this one; empty if not."""
        origin = self.config.elsewhere(self.port)
        return origin and f"{origin}{self._path}"

    @property
    def _path(self) -> str:
        return f"{self.prefix}/?token={self.guard.token}"

    def open_browser(self) -> bool:
        """Open a browser, where a window can be shown."""
        return has_browser() and webbrowser.open(self.address)

    def close(self) -> None:
        """Stop the server and its workers; requests under way get a moment."""
        if self._thread.is_alive():
            self._server.task_dispatcher.shutdown(cancel_pending=True, timeout=LAST_ANSWERS)
            trigger = self._server.trigger
            # in the thread of the server: closing its sockets from another one would leave it waiting for them; under the lock,
            # or the server, woken by a request, could close the trigger before it is pulled
            with trigger.lock:
                trigger.thunks.append(self._hang_up)
                trigger._physical_pull()
            self._thread.join()
        self._stack.close()

    def _hang_up(self) -> None:
        for channel in list(self._server.active_channels.values()):
            channel.handle_close()
        # a request that still hangs would write to a closed file descriptor, which may be another file's by then
        self._server.trigger._physical_pull = lambda: None
        self._server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<panther viewer on port {self.port}{'' if self._thread.is_alive() else ', closed'}>"

    def _repr_html_(self) -> str:
        """A frame in the notebook, and a link for where frames are not shown."""
        if not self._thread.is_alive():
            return "<p>The viewer was closed.</p>"
        # behind the hub's proxy the path alone is right; on this machine Jupyter itself is mostly under `localhost`, and a cookie
        # for this site only goes where the frame's host is the page's
        within = self._path if self.prefix else self.address.replace("//127.0.0.1:", "//localhost:", 1)
        source = html.escape(within, quote=True)
        return (
            f'<iframe src="{source}" width="100%" height="{HEIGHT}" style="border: 0" title="panther view"></iframe>'
            f'<p><a href="{source}" target="_blank" rel="noopener">Open in a tab</a></p>'
        )


def has_browser() -> bool:
    """Whether a browser window can be opened: not over SSH, not without a display. A text browser would take the terminal."""
    if os.environ.get("BROWSER") or sys.platform in ("darwin", "win32"):
        return True
    return not os.environ.get("SSH_CONNECTION") and bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def open_viewer(
    read: "Callable[[Any, Any], Workbench]", config: ListenConfig, workers: int = 0, preload: tuple[str, ...] = PRELOAD
) -> Viewer:
    """Serve the page, then what ``read`` opens with the worker processes of pages and those of long tasks."""
    listening = config.listen()  # first: a port in use is known at once
    start_early(*preload)

    def load(stack: ExitStack) -> "Workbench":
        from panther.engine import open_executor

        executor, long_executor = (stack.enter_context(open_executor(workers)) for _ in range(2))
        return read(executor, long_executor)

    return Viewer(load, config, listening)

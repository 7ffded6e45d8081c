"""`panther view`."""

import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, Field

from panther.errors import note, require_packages
from panther.verbs import parameters as p
from panther.verbs import verb

if TYPE_CHECKING:
    from panther.viewer.serve import Viewer

NOTEBOOKS = ("http://localhost:*", "http://127.0.0.1:*")  # origins of Jupyter on this machine


@verb("view", "Look")
def view(
    place: Annotated[Path, p.option(metavar="FOLDER")],
    *,
    prototypes: Annotated[
        list[Path] | None, BeforeValidator(p.as_list), p.option(panel=p.PROTOTYPES, short="-p")
    ] = None,
    features: Annotated[Any, p.option(panel=p.SLIDES, text=Path, metavar="PATH")] = None,
    slides: p.SlideImages = None,
    embeddings: Annotated[Path | None, p.option(metavar="FILE")] = None,
    study: Annotated[Path | None, p.option(metavar="FOLDER")] = None,
    model: Annotated[list[Path] | None, BeforeValidator(p.as_list)] = None,
    table: p.TableLike = None,
    slide_column: p.SlideColumn = None,
    patient_column: p.PatientColumn = None,
    site_column: p.SiteColumn = None,
    names: p.PrototypeNames = None,
    slide_mpp: p.SlideMpp = None,
    slide_mpp_table: p.SlideMppTable = None,
    allow_folder: Annotated[list[Path] | None, BeforeValidator(p.as_list)] = None,
    port: Annotated[int, Field(ge=0, le=65535)] = 0,
    host: str = "127.0.0.1",
    allow_host: Annotated[list[str] | None, BeforeValidator(p.as_list)] = None,
    prefix: str | None = None,
    browser: Annotated[bool, p.option(negative="--no-browser")] = True,
    workers: Annotated[int, Field(ge=0), p.option(panel=p.RUNNING, short="-j", metavar="N")] = 0,
) -> "Viewer | None":
    """Look at slides, prototypes, cohort and study in the browser, from what is already on disk.

    The command prints one address, which holds a token; Ctrl-C ends it.

    Parameters
    ----------
    place : path
        Folder of a job, a demo, features or slides; its files are recognised by their content.
    prototypes : path or list of paths, optional
        Prototype file; repeatable, to compare.
    model : path or list of paths, optional
        Model of `panther train`; repeatable.
    slides, table, names : path, optional
        Images, clinical table and names of prototypes that are used instead of those in the folder.
    features : path, optional
        Features, where the folder holds several kinds.
    embeddings : path, optional
        Embeddings of the cohort (.h5ad, .zarr).
    study : path, optional
        Folder that `panther run` wrote.
    slide_column, patient_column, site_column : str, optional
        Columns of the table, if not the default names.
    slide_mpp, slide_mpp_table
        True resolution of the slides, um/px, where their tags are wrong; per slide a CSV with columns wsi, mpp.
    allow_folder : list of paths, optional
        Further folders that may be read, where links lead into them.
    port : int, default=0
        Port on this machine; 0 takes a free one.
    host : str, default="127.0.0.1"
        Address to listen on; other machines can reach it then. 0.0.0.0: all addresses of this machine.
    allow_host : list of str, optional
        Names of hosts under which a proxy shows it, e.g. that of a JupyterHub.
    prefix : str, optional
        Path under which a proxy shows it; in a JupyterHub it is known.
    browser : bool
        Open a browser, where there is one.
    workers : int, default=0
        Worker processes, one thread each; 0: one per core.

    Returns
    -------
    Viewer
        Runs beside the program, with `address` to open in a browser (in a notebook it shows itself as a frame) and `close()`; it ends with
        the Python process at the latest.

    Examples
    --------
    >>> import numpy as np, panther
    >>> np.save("S1.npy", np.random.default_rng(0).normal(size=(50, 8)).astype(np.float32))
    >>> with panther.view("S1.npy", workers=1) as viewer:
    ...     viewer.address
    'http://127.0.0.1:...'
    """
    require_packages("view", "flask", "waitress", "plotly", "PIL")
    from panther.engine import SESSION
    from panther.errors import InputError
    from panther.progress import progress_of_others
    from panther.viewer.address import ListenConfig
    from panther.viewer.serve import open_viewer

    if not place.exists():
        raise InputError(f"{place}: no such file or folder; expected a job, features or slides")

    def read(executor: Any, long_executor: Any) -> Any:
        from panther.engine import Work
        from panther.explain.scene import MapSettings
        from panther.slides import read_mpp_table
        from panther.storage.clinical import Columns
        from panther.viewer.contents import Inputs, find_contents
        from panther.viewer.workbench import Workbench

        paths: dict[str, Any] = {"features": features, "slides": slides, "table": table, "names": names}
        paths = {name: Path(path) for name, path in paths.items() if path is not None}
        lists = {"prototypes": prototypes, "models": model, "allow_folders": allow_folder}
        paths |= {name: tuple(values or ()) for name, values in lists.items()}
        columns = Columns(slide_column, patient_column, site_column)
        inputs = Inputs(**paths, embeddings=embeddings, study=study, columns=columns)
        mpp_table = read_mpp_table(slide_mpp_table) if slide_mpp_table else {}
        settings = MapSettings(slide_mpp=slide_mpp, slide_mpp_table=mpp_table)
        return Workbench(find_contents(place, inputs, Work(executor)), settings, executor, long_executor)

    is_command = SESSION.is_command
    config = ListenConfig(host, port, prefix, tuple(allow_host or ()), () if is_command else NOTEBOOKS)
    viewer = open_viewer(read, config, workers)
    if not is_command:
        return viewer.wait()
    with viewer, until_stopped() as stopped, progress_of_others():  # waiting for requests is no progress
        for text in notes_on_access(config, viewer.port, viewer.elsewhere):
            note(text)
        print(viewer.address, flush=True)  # alone on its line, for scripts and for clicking
        if browser:
            viewer.open_browser()
        viewer.wait()  # while the page says so
        stopped.wait()
    return None


@contextmanager
def until_stopped() -> Iterator[threading.Event]:
    """An event that Ctrl-C and `kill` set: both are the usual way to end the viewer, and no failure."""
    stopped = threading.Event()
    before = {number: signal.signal(number, lambda *_: stopped.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def notes_on_access(config: Any, port: int, elsewhere: str = "") -> Iterator[str]:
    """Notes on who can reach the viewer, and under which address, where that is not the printed one."""
    from panther.viewer.address import LOOPBACK, PREFIX, PUBLIC

    if config.host not in LOOPBACK:
        yield (
            "anyone who reaches this machine and has the token can see the slides and rename prototypes; the connection is not "
            "encrypted. Without --host the viewer is reached from this machine and through SSH only"
        )
        if elsewhere:
            yield f"address for other machines, as far as their network reaches this one: {elsewhere}"
    elif config.prefix is None and os.environ.get(PREFIX) and not os.environ.get(PUBLIC):
        yield "in a JupyterHub, replace the host of the address by the hub's, and name it with --allow-host"
    elif os.environ.get("SSH_CONNECTION"):
        yield f"to open it on your own computer: ssh -L {port}:127.0.0.1:{port} {socket.gethostname()}"

"""`panther view`."""

import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from panther.cli import _common as common
from panther.cli import _options as opt
from panther.progress import progress_of_others


def view(
    place: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder of a job, a demo, features or slides.", show_default=False)
    ],
    prototypes: Annotated[
        list[Path] | None, typer.Option("-p", "--prototypes", help="Prototype file; may be repeated to compare.")
    ] = None,
    features: Annotated[Path | None, typer.Option(help="Features, where the folder holds several kinds.")] = None,
    slides: opt.SlidesOption = None,
    embeddings: Annotated[Path | None, typer.Option(help="Embeddings of the cohort (.h5ad).")] = None,
    study: Annotated[Path | None, typer.Option(help="Folder that `panther run` wrote.")] = None,
    model: Annotated[list[Path] | None, typer.Option(help="Model of `panther train`; may be repeated.")] = None,
    table: Annotated[Path | None, typer.Option(help="Clinical table (CSV, TSV, parquet).")] = None,
    slide_column: opt.SlideColumnOption = None,
    patient_column: opt.PatientColumnOption = None,
    site_column: opt.SiteColumnOption = None,
    names: opt.NamesOption = None,
    slide_mpp: opt.SlideMppOption = None,
    slide_mpp_table: opt.SlideMppTableOption = None,
    allow_folder: Annotated[
        list[Path] | None,
        typer.Option("--allow-folder", help="Further folder that may be read, where links lead into it; repeatable."),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 0,
    host: Annotated[
        str,
        typer.Option(
            help="Address to listen on; people at other machines can reach it then. 0.0.0.0: all of this machine's."
        ),
    ] = "127.0.0.1",
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", help="Host name under which a proxy shows it; may be repeated."),
    ] = None,
    prefix: Annotated[str | None, typer.Option(help="Path under which a proxy shows it.")] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open a browser, where there is one.")] = True,
    workers: opt.ProcessesOption = 0,
) -> None:
    """Look at slides, prototypes, cohort and study in the browser, from what is already on disk.

    Prints one address, which holds a token; Ctrl-C ends it.
    """
    from panther.viewer.show import check_packages

    check_packages()
    from panther.explain.scene import MapSettings
    from panther.slides import read_mpp_table
    from panther.viewer.address import Where
    from panther.viewer.contents import Given
    from panther.viewer.serve import open_viewer

    given = Given(
        features,
        slides,
        tuple(prototypes or ()),
        tuple(model or ()),
        embeddings,
        study,
        table,
        names,
        common.columns(slide_column, patient_column, site_column),
        tuple(allow_folder or ()),
    )
    settings = MapSettings(
        slide_mpp=slide_mpp, slide_mpp_table=read_mpp_table(slide_mpp_table) if slide_mpp_table else {}
    )
    where = Where(host, port, prefix, tuple(allow_host or ()))
    with open_viewer(place, given, where, settings, workers) as viewer, _until_stopped() as stopped:
        for note in _notes(where, viewer.port, viewer.others):
            typer.echo(f"Note: {note}", err=True)
        typer.echo(viewer.address)  # alone on its line, for scripts and for clicking
        if browser:
            viewer.open_browser()
        with progress_of_others():  # it is not at work but at hand: no lines about that in a log
            stopped.wait()


@contextmanager
def _until_stopped() -> Iterator[threading.Event]:
    """An event that Ctrl-C and `kill` set: both are the usual way to end it, and no failure."""
    stopped = threading.Event()
    before = {number: signal.signal(number, lambda *_: stopped.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _notes(where: Any, port: int, others: Sequence[str] = ()) -> Iterator[str]:
    """What to know about who can reach it, and with which address, where that is not the one which is printed for scripts."""
    import os

    from panther.viewer.address import LOOPBACK, PREFIX, PUBLIC

    if where.host not in LOOPBACK:
        yield (
            "whoever reaches this machine and has the token can see the slides and rename prototypes; what is sent is not "
            "encrypted. On this machine alone and through SSH it is: leave --host out."
        )
        if others:
            yield "\n  ".join(
                ("people at other machines open one of these, as far as their network leads here:", *others)
            )
    elif where.prefix is None and os.environ.get(PREFIX) and not os.environ.get(PUBLIC):
        yield "in a JupyterHub, put the hub's own host in place of the one below, and give it with --allow-host."
    elif os.environ.get("SSH_CONNECTION"):
        yield f"to open it on your own computer: ssh -L {port}:127.0.0.1:{port} {socket.gethostname()}"

"""The command `panther`. Commands are a few lines over the library; heavy imports happen inside them."""

import io
import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.main import get_command

from panther.cli import (
    attribute,
    concordance,
)
from panther.cli._options import add_panels
from panther.cli.completion import add_completion
from panther.errors import InputError, LeftOutWarning
from panther.progress import log_progress
from panther.version import __version__

INTERRUPTED, TERMINATED = 130, 143  # what the shell calls Ctrl-C, and an end at the wall-time

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="From whole-slide images to prototypes, compact slide embeddings and predictions (PANTHER, CVPR 2024).",
    epilog="Exit codes: 0 all done, 1 some items failed (they are listed), 2 the request was refused.",
)
# what one wants to do -> commands
PANELS: dict[str, dict[str, Callable[..., None]]] = {
    "Look": {
        "tissue-classifier": concordance.train_classifier,
        "concordance": concordance.compare,
        "attribute": attribute.attribute,
        "kaplan-meier": attribute.kaplan_meier,
    },
}
# command -> what its fork server imports beside torch, so that the first worker answers at once
PRELOADS = {
    "run": ("panther.study.run", "h5py"),
    "view": ("panther.engine", "h5py", "panther.viewer.workbench"),
}
for panel, commands in PANELS.items():
    for name, function in commands.items():
        app.command(name, rich_help_panel=panel)(function)
add_panels(app)
add_completion(app)


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"panther-wsi {__version__}")
        raise typer.Exit


@app.callback()
def panther(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Show where an error came from; may stand anywhere.")
    ] = False,
) -> None:
    """From whole-slide images to prototypes, compact slide embeddings and predictions (PANTHER, CVPR 2024)."""
    context.with_resource(warnings.catch_warnings())
    warnings.simplefilter("ignore", LeftOutWarning)  # every command lists who failed, itself


def main(given: list[str]) -> None:
    """Run the command; an error is one sentence on stderr and exit code 2, with a traceback only when -v is given."""
    if not os.environ.get("OMP_NUM_THREADS", "1").isdecimal():
        os.environ.setdefault("NUMEXPR_NUM_THREADS", "1")  # OpenMP takes "4,2"; numexpr, which pandas imports, does not
    arguments = [a for a in given if a not in ("-v", "--verbose")]
    verbose = len(arguments) < len(given)
    if verbose:
        logging.basicConfig(format="%(message)s")
        logging.getLogger("panther").setLevel(logging.DEBUG)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a letter that the locale does not have is no reason to fail
            stream.reconfigure(errors="backslashreplace")
    commands: Any = get_command(app)
    name = next(iter(arguments), "")
    if _uses_workers(commands.commands.get(name), arguments):
        from panther.machine import keep_freed_memory, start_early

        start_early(*PRELOADS.get(name, ()))
        keep_freed_memory()
    elif any(".h5ad" in argument for argument in arguments):
        from panther.storage.isolated import start_helper

        start_helper("anndata")  # while this process imports torch
    with _ending_when_told():
        _run(commands, arguments, verbose)


def _uses_workers(command: Any, arguments: list[str]) -> bool:
    """Whether this call is about to need worker processes."""
    return command is not None and "--help" not in arguments and any(p.name == "workers" for p in command.params)


@contextmanager
def _ending_when_told() -> Iterator[None]:
    """End in order when a scheduler says so: claims are given back, and other machines need not wait until they expire."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _run(commands: Any, arguments: list[str], verbose: bool) -> None:
    try:
        with log_progress(" ".join(["panther", *arguments[:1]])):
            commands(arguments, prog_name="panther")
    except SystemExit as end:
        if end.code in (INTERRUPTED, TERMINATED):
            typer.echo("panther: stopped. Type the same command again to go on.", err=True)
        raise
    except InputError as error:
        _refuse(str(error), verbose)
    except OSError as error:
        _refuse(f"{error.filename or 'The system'}: {error.strerror or error}.", verbose)
    except MemoryError:
        _refuse("Out of memory; use fewer `workers`, a smaller `sample`, or a machine with more.", verbose)
    except Exception as error:  # a bug of ours, or a library's; still no traceback unless asked for
        _refuse(
            f"Unexpected {type(error).__name__}: {error}. Run again with -v to see where, and please report it.",
            verbose,
        )


def _refuse(sentence: str, verbose: bool) -> None:
    if verbose:
        import traceback

        traceback.print_exc()
    typer.echo(f"panther: {sentence}", err=True)
    sys.exit(2)

"""The command `panther`. Commands are a few lines over the library; heavy imports happen inside them."""

import io
import logging
import sys
from typing import Annotated

import typer

from panther.cli import (
    atlas,
    attribute,
    bags,
    concordance,
    demo,
    doctor,
    embed,
    encoders,
    model,
    prototypes,
    report,
    slides,
    splits,
    study,
    trust,
)
from panther.cli import map as maps
from panther.cli._flags import as_typed
from panther.cli._progress import told_in_logs
from panther.cli.completion import add_completion
from panther.errors import InputError
from panther.version import __version__

INTERRUPTED = 130  # what the shell calls Ctrl-C

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="From whole-slide images to prototypes, compact slide embeddings and predictions (PANTHER, CVPR 2024).",
    epilog="Exit codes: 0 all done, 1 some items failed (they are listed), 2 the request was refused.",
)
MODULES = (
    *(demo, slides, encoders, bags, prototypes, embed, maps, atlas, concordance, trust),
    *(splits, study, model, attribute, report, doctor),
)
for module in MODULES:
    module.add_to(app)
add_completion(app)


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"panther-wsi {__version__}")
        raise typer.Exit


@app.callback()
def panther(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Show where an error came from; may stand anywhere.")
    ] = False,
) -> None:
    """From whole-slide images to prototypes, compact slide embeddings and predictions (PANTHER, CVPR 2024)."""


def main() -> None:
    """Run the command; an error is one sentence on stderr and exit code 2, with a traceback only when -v is given."""
    arguments = [a for a in sys.argv[1:] if a not in ("-v", "--verbose")]
    verbose = len(arguments) < len(sys.argv) - 1
    if verbose:
        logging.basicConfig(format="%(message)s")
        logging.getLogger("panther").setLevel(logging.DEBUG)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a letter that the locale does not have is no reason to fail
            stream.reconfigure(errors="backslashreplace")
    command = " ".join(["panther", *arguments[:1]])
    try:
        with told_in_logs(command):
            app(arguments, prog_name="panther")
    except SystemExit as end:
        if end.code == INTERRUPTED:
            typer.echo("panther: stopped. Type the same command again to go on.", err=True)
        raise
    except InputError as error:
        _refuse(as_typed(str(error)), verbose)
    except OSError as error:
        _refuse(f"{error.filename or 'The system'}: {error.strerror or error}.", verbose)
    except MemoryError:
        _refuse("Out of memory; use fewer --workers, a smaller --sample, or a machine with more.", verbose)
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

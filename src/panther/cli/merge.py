"""`panther merge`."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from panther.cli import _common as common


def merge(
    place: Annotated[
        Path, typer.Argument(metavar="OUTPUT", help="What the shards were told to write.", show_default=False)
    ],
) -> None:
    """Check that the shards of a command have done all their parts, and write its output from them; nothing is computed."""
    from typer.main import get_command

    from panther.cli import app
    from panther.errors import InputError
    from panther.shards.session import command_of, refuse_others_folder, session_folder
    from panther.shards.shard import MERGE

    folder = session_folder(place)
    if not folder.exists():
        if not place.exists():
            raise InputError(f"{place}: neither this output nor shards of it ({folder.name}) are there.")
        typer.echo(f"{place} is whole: its shards have come to their end.")
        return
    refuse_others_folder(folder)
    common.typed[:], where = command_of(folder)
    os.chdir(where)
    commands: Any = get_command(app)
    commands([*common.typed, "--shard", MERGE], prog_name="panther", standalone_mode=False)

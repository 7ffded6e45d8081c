"""`panther status`."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from panther.cli import _common as common
from panther.cli import _options as opt


def status(
    folder: Annotated[Path, typer.Argument(help="Folder of `panther slides` or `panther run`.", show_default=False)],
    as_json: opt.JsonOption = False,
) -> None:
    """Count what is done, failed (with reasons) and left in a job or study folder; nothing is changed."""
    from panther.status import read_status

    steps = read_status(folder)
    width = max((len(one.step) for one in steps), default=0)
    lines = [
        f"{one.step:<{width}}  {one.done:,} of {one.total:,} done, {len(one.failed):,} failed, {one.left:,} left"
        for one in steps
    ]
    failures = {name: reason for one in steps for name, reason in one.failed.items()}
    result = {"steps": [{**asdict(one), "left": one.left} for one in steps]}
    common.report(result, lines, failures, as_json=as_json)

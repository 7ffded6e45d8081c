"""`panther demo`."""

from pathlib import Path
from typing import Annotated

import typer

from panther.cli import _common as common
from panther.cli import _options as opt
from panther.progress import progress_of_others


def demo(
    folder: Annotated[Path, typer.Option("-o", "--output", help="Folder to work in; run again to go on.")] = Path(
        "demo"
    ),
    patients: Annotated[int, typer.Option(min=18, help="Synthetic patients; 60 take some minutes on two cores.")] = 60,
    full: Annotated[bool, typer.Option("--full", help="All ten methods, also the slow networks.")] = False,
    seed: opt.SeedOption = 0,
) -> None:
    """Draw synthetic slides and run every command on them, from tissue to the report; offline, each one printed."""
    from panther_demo import CohortSettings, Demo, run_demo

    cohort = CohortSettings(patients, min(5, patients // 6), seed=seed)  # a site is a fold: six patients at least
    with progress_of_others():
        run_demo(Demo(folder, cohort, full), typer.echo, common.track)

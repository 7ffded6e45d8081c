"""`panther demo`."""

from functools import partial
from pathlib import Path
from typing import Annotated

from pydantic import Field

from panther.verbs import parameters as p
from panther.verbs import verb


@verb("demo", "Start")
def demo(
    *,
    folder: Annotated[
        Path, p.option("Folder to work in; run again to go on.", name="--output", short="-o", metavar="FOLDER")
    ] = Path("demo"),
    patients: Annotated[
        int, Field(ge=18, strict=True), p.option("Synthetic patients; 60 take some minutes on two cores.")
    ] = 60,
    full: Annotated[bool, p.option("All ten methods, also the slow networks.")] = False,
    seed: p.Seed = 0,
) -> None:
    """Draw synthetic slides and run every command on them, from tissue to the report; offline, each one printed.

    Parameters
    ----------
    folder : path
        Folder to work in; run again to go on.
    patients : int, default=60
        Synthetic patients, at least 18.
    full : bool
        All ten methods, also the slow networks.
    seed : int
        Same seed and input: same result.
    """
    from panther.engine import SESSION
    from panther.progress import progress_of_others
    from panther_demo import CohortSettings, Demo, run_demo

    cohort = CohortSettings(patients, min(5, patients // 6), seed=seed)  # a site is a fold: six patients at least
    with progress_of_others():
        run_demo(Demo(folder, cohort, full), partial(print, flush=True), SESSION.track)

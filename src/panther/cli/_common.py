"""What commands share: options, progress, and the way results and failures are told."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from panther.cli._flags import as_typed
from panther.cli._progress import track as track

LARGEST_SEED = 2**32 - 1  # as panther.limits has it, without importing anything
SMALL_JOB = 500e6  # bytes of features


class By(StrEnum):
    """What one embedding stands for."""

    slide = "slide"
    patient = "patient"


FeaturesArgument = Annotated[
    Path, typer.Argument(help="Feature file, or folder of them (searched in depth).", show_default=False)
]
OutputOption = Annotated[Path, typer.Option("-o", "--output", help="File to write.", show_default=False)]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")]
WorkersOption = Annotated[
    int, typer.Option("-j", "--workers", help="Worker processes, one thread each; 0: one per core.")
]
ClusterOption = Annotated[
    str | None, typer.Option(help="Address of a Dask scheduler (tcp://HOST:PORT) to work on more than one machine.")
]
DeviceOption = Annotated[str, typer.Option(help="Where to compute: cpu, cuda, cuda:1 ...")]
TableOption = Annotated[
    Path | None,
    typer.Option(help="Clinical table (CSV, TSV, parquet) with slide_id and case_id, or a folder of split tables."),
]
SlideMppOption = Annotated[
    float | None, typer.Option(help="True resolution of the slides, um/px, if tags are wrong.", show_default=False)
]
MppTableOption = Annotated[Path | None, typer.Option(help="The same per slide: a CSV with columns wsi,mpp.")]
BackgroundOption = Annotated[
    str,
    typer.Option(
        help="What is behind the colours: grey tissue, on which they keep their look; the slide's colour; or none."
    ),
]
OpacityOption = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=1,
        help="1 hides the tissue; by default as much is seen as leaves every colour its own.",
        show_default=False,
    ),
]
ByOption = Annotated[By, typer.Option(help="One sample a slide, or a patient (needs --table).")]
EncoderNameOption = Annotated[
    str | None, typer.Option(help="Encoder of the features, where the files name another or none.", show_default=False)
]
MixedOption = Annotated[
    bool, typer.Option("--allow-mixed-resolution", help="Take patches of other resolutions, which are refused.")
]
LabelOption = Annotated[str | None, typer.Option(help="Column of the label.")]
SurvivalOption = Annotated[str | None, typer.Option(help="Endpoint: os, dss, dfi or pfi.")]
TimeOption = Annotated[str | None, typer.Option(help="Column with the time, where it has another name.")]
EventOption = Annotated[str | None, typer.Option(help="Column that is 1 where the event happened.")]
CensorshipOption = Annotated[str | None, typer.Option(help="Column that is 1 where the patient is censored.")]
SplitOption = Annotated[str | None, typer.Option(help="Part of the table to use, e.g. train.")]


def reading(encoder_name: str | None, mixed: bool) -> Any:
    """What the user says about the feature files."""
    from panther.storage.bags import Reading

    return Reading(encoder_name, mixed)


def suitable_workers(workers: int, refs: Iterable[Any], device: str = "cpu") -> int:
    """Where the number is left to us: a small job stays in this process, because starting workers takes longer than the work.

    On a GPU one process is bound by launching kernels, and a few side by side keep the card busy.
    """
    if workers:
        return workers
    if device != "cpu":
        return min(8, os.cpu_count() or 1)
    return 1 if sum(path.stat().st_size for ref in refs for path in ref.files if path.exists()) < SMALL_JOB else 0


@contextmanager
def open_work(workers: int, refs: Iterable[Any], cluster: str | None = None, device: str = "cpu") -> Iterator[Any]:
    """As many workers as suit these samples, on a device that is there, with a progress bar."""
    from panther import execution

    workers = suitable_workers(workers, refs, checked_device(device) if device != "cpu" else device)
    with execution.open_work(workers, cluster, device=device, track=track) as work:
        yield work


def checked(model: Any, **values: Any) -> Any:
    """Value of a pydantic model, or its first problem as a sentence."""
    from pydantic import ValidationError

    from panther.errors import InputError

    try:
        return model(**values)
    except ValidationError as error:
        problem = error.errors()[0]
        where = f"--{problem['loc'][0]}: " if problem["loc"] else ""
        raise InputError(f"{where}{problem['msg'].removeprefix('Value error, ')}.") from error


def checked_device(device: str) -> str:
    """Refuse a device that is not there, before the work."""
    import torch

    from panther.errors import InputError

    try:
        torch.zeros(1, device=device).item()  # `meta` is a device that holds no numbers
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise InputError(
            f"The device {device!r} cannot be used here ({str(error).splitlines()[0]}); try --device cpu."
        ) from error
    return device


def report(
    result: Mapping[str, Any],
    lines: Iterable[str],
    failures: Mapping[str, str],
    *,
    as_json: bool,
    notes: Iterable[str] = (),
) -> None:
    """Tell what was done, then what failed; exit code 1 if anything did."""
    notes = [as_typed(note) for note in notes]
    failures = {name: as_typed(reason) for name, reason in failures.items()}
    if as_json:
        typer.echo(json.dumps({**result, "notes": notes, "failures": failures}, indent=2, default=str))
    else:
        for line in lines:
            typer.echo(as_typed(line))
        for note in notes:
            typer.echo(f"Note: {note}", err=True)
        for sentence in list(failures.values())[:20]:
            typer.echo(f"Failed: {sentence}", err=True)
        if len(failures) > 20:
            typer.echo(f"... and {len(failures) - 20} more; --json lists all.", err=True)
    if failures:
        raise typer.Exit(1)

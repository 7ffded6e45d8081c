"""`panther report`."""

from pathlib import Path
from typing import Annotated

import typer

from panther.cli import _common as common
from panther.cli import _options as opt


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder that `panther run` wrote.", show_default=False)],
    output: Annotated[Path, typer.Option("-o", "--output", help="HTML file to write.", show_default=False)],
    atlas: Annotated[Path | None, typer.Option(help="Folder of `panther atlas`.")] = None,
    maps: Annotated[Path | None, typer.Option(help="Folder of `panther map`.")] = None,
    attribution: Annotated[Path | None, typer.Option(help="Folder of `panther attribute`.")] = None,
    km: Annotated[Path | None, typer.Option(help="Folder of `panther kaplan-meier`.")] = None,
    agreement: Annotated[Path | None, typer.Option(help="Folder of `panther concordance`.")] = None,
    names: opt.NamesOption = None,
    title: Annotated[str | None, typer.Option(help="Title; the study's name by default.")] = None,
    color_by: Annotated[
        str | None, typer.Option("--color-by", help="Column of the cohort that colours samples first.")
    ] = None,
    as_json: opt.JsonOption = False,
) -> None:
    """Write one HTML file that tells a study in plain words, with its figures; it works offline and prints."""
    from panther.report.make import make_report

    found = make_report(
        run,
        atlas=atlas,
        maps=maps,
        attribution=attribution,
        km=km,
        agreement=agreement,
        names=names,
        title=title,
        color_by=color_by,
        output=output,
    )
    size = output.stat().st_size
    lines = [f"{output}: {size / 1e6:.1f} MB, one file; open it in any browser, or print it."]
    common.report({"output": str(output), "bytes": size}, lines, found.failures, as_json=as_json, notes=found.notes)

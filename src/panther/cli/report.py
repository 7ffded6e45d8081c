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
    from panther.errors import InputError
    from panther.report.material import Request, gather
    from panther.report.page import write_page
    from panther.storage.inputs import check_output

    if output.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"{output}: the report is one HTML file; give a name that ends in .html.")
    check_output(output, names)
    given = {"atlas": atlas, "maps": maps, "attribution": attribution, "km": km, "agreement": agreement}
    folders = {name: folder for name, folder in given.items() if folder is not None}
    material = gather(Request(run, folders, names, title, color_by))
    notes = write_page(material, output)
    size = output.stat().st_size
    lines = [f"{output}: {size / 1e6:.1f} MB, one file; open it in any browser, or print it."]
    common.report({"output": str(output), "bytes": size}, lines, material.failures, as_json=as_json, notes=notes)

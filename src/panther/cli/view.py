"""`panther view`."""

from pathlib import Path
from typing import Annotated

import typer

from panther.cli import _options as opt


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
    table: Annotated[Path | None, typer.Option(help="Clinical table.")] = None,
    names: opt.NamesOption = None,
    slide_mpp: opt.SlideMppOption = None,
    mpp_table: opt.SlideMppTableOption = None,
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.")] = 0,
    host: Annotated[
        str, typer.Option(help="Address to listen on; others than this machine's own can reach it then.")
    ] = "127.0.0.1",
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", help="Further host name under which a proxy shows it; may be repeated."),
    ] = None,
    prefix: Annotated[str | None, typer.Option(help="Path under which a proxy shows it.")] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open a browser.")] = True,
) -> None:
    """Look at slides, prototypes, cohort and study in the browser, from what is already on disk."""
    from panther.execution import open_executor
    from panther.explain.scene import MapSettings
    from panther.slides import read_mpp_table
    from panther.viewer.contents import Given
    from panther.viewer.security import LOOPBACK
    from panther.viewer.serve import Where, open_viewer

    given = Given(features, slides, tuple(prototypes or ()), tuple(model or ()), embeddings, study, table, names)
    settings = MapSettings(slide_mpp=slide_mpp, mpp_table=read_mpp_table(mpp_table) if mpp_table else {})
    if host not in LOOPBACK:
        typer.echo(
            "Note: whoever reaches this machine and has the token can see the slides and rename prototypes.", err=True
        )
    where = Where(host, port, prefix, tuple(allow_host or ()))
    with open_executor(0) as executor, open_viewer(place, given, where, executor, settings) as viewer:
        typer.echo(viewer.address)  # alone on its line, for scripts and for clicking
        if browser:
            viewer.open_browser()
        viewer.wait()

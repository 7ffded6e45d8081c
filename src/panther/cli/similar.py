"""`panther similar`."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from panther.cli import _common as common
from panther.cli import _options as opt


def similar(
    embeddings: Annotated[Path, typer.Argument(help="Embeddings of the cohort (.h5ad or .npz).", show_default=False)],
    query: Annotated[
        str,
        typer.Option(
            help="Slide of the embeddings by its name; or a new slide's feature file, with -p.", show_default=False
        ),
    ],
    neighbours: Annotated[int, typer.Option("-k", "--neighbours", min=1, help="How many slides.")] = 10,
    on: opt.OnOption = None,
    prototypes: Annotated[
        Path | None, typer.Option("-p", "--prototypes", help="Prototype file that the embeddings were made with.")
    ] = None,
    table: opt.TableOption = None,
    slide_column: opt.SlideColumnOption = None,
    patient_column: opt.PatientColumnOption = None,
    site_column: opt.SiteColumnOption = None,
    same_patient: Annotated[
        bool, typer.Option("--same-patient", help="Find other slides of the same patient too.")
    ] = False,
    leave_site_out: opt.LeaveSiteOutOption = False,
    names: opt.NamesOption = None,
    as_json: opt.JsonOption = False,
) -> None:
    """Find the slides of other patients that are most like one slide, and say why."""
    from panther.explain.similar.make import similar as find

    start = time.perf_counter()
    found = find(
        embeddings,
        query,
        neighbours,
        on=on,
        prototypes=prototypes,
        table=table,
        columns=common.columns(slide_column, patient_column, site_column),
        same_patient=same_patient,
        leave_site_out=leave_site_out,
        names=names,
    )
    seconds = time.perf_counter() - start
    lines = [
        f"{len(found.hits)} slides most like {found.query} on {found.on}, in {seconds:.1f} s",
        *(line for hit in found.hits for line in _lines(hit)),
    ]
    result = {"embeddings": str(embeddings), "seconds": seconds, **found.to_dict()}
    common.report(result, lines, {}, as_json=as_json, notes=found.notes)


def _lines(hit: Any) -> list[str]:
    whose = "" if hit.patient == hit.slide else f" (patient {hit.patient})"
    first = f"{hit.rank:>3}  {hit.distance:.4f}  {hit.slide}{whose}"
    return [first] if hit.reasons is None else [first, f"       {hit.reasons.sentence}"]

"""`panther similar`."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from panther.cli import _common as common
from panther.cli import _options as opt


def similar(
    embeddings: Annotated[
        Path,
        typer.Argument(
            help="Embeddings of the cohort (.h5ad or .npz), or vectors of a slide encoder.", show_default=False
        ),
    ],
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
    features: Annotated[
        Path | None, typer.Option(help="Feature files of the cohort, for pictures of what is shared (with -o and -p).")
    ] = None,
    slides: opt.SlidesOption = None,
    max_side: opt.MaxSideOption = 1024,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Folder for similar.csv, similar.json and pictures.")
    ] = None,
    as_json: opt.JsonOption = False,
) -> None:
    """Find the slides of other patients that are most like one slide, and say why."""
    from panther.search.similar import similar as find
    from panther.store import check_output_folder

    start = time.perf_counter()
    if output is not None:
        check_output_folder(output, ("similar.csv", "similar.json"), embeddings, table, names, prototypes)
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
    drawn = _written(found, output, query, features, prototypes, slides, names, max_side)
    seconds = time.perf_counter() - start
    lines = [
        f"{len(found.hits)} slides most like {found.query} on {found.on}, in {seconds:.1f} s",
        *(line for hit in found.hits for line in _lines(hit)),
    ]
    if output is not None:
        lines.append(f"-> {output} (similar.csv, similar.json, {len(drawn.files)} pictures)")
    files = [str(file) for file in drawn.files]
    result = {"embeddings": str(embeddings), "seconds": seconds, **found.to_dict(), "pictures": files}
    common.report(result, lines, drawn.failures, as_json=as_json, notes=[*found.notes, *drawn.notes])


def _written(
    found: Any,
    output: Path | None,
    query: str,
    features: Path | None,
    prototypes: Path | None,
    slides: Path | None,
    names: Path | None,
    max_side: int,
) -> Any:
    """Tables and pictures, where there is a folder for them."""
    from panther.errors import InputError
    from panther.explain.scene import MapSettings
    from panther.search.pictures import Pictures, picture_hits
    from panther.storage.bags import BagRef
    from panther.storage.files import write_json
    from panther.storage.tables import write_spreadsheet

    if output is None:
        if features is not None:
            raise InputError("--features are drawn into a folder; give it with -o.")
        return Pictures()
    if features is not None and prototypes is None:
        raise InputError(
            "--features are coloured by prototypes; give those that the embeddings were made with, with -p."
        )
    table = found.to_frame()
    write_spreadsheet(output / "similar.csv", list(table.columns), table.itertuples(index=False))
    write_json(output / "similar.json", found.to_dict())
    if features is None or prototypes is None:
        return Pictures()
    new = BagRef(found.query, (Path(query),)) if Path(query).is_file() else None
    settings = MapSettings(max_side=max_side)
    return picture_hits(found, features, prototypes, output, slides=slides, names=names, settings=settings, query=new)


def _lines(hit: Any) -> list[str]:
    whose = "" if hit.patient == hit.slide else f" (patient {hit.patient})"
    first = f"{hit.rank:>3}  {hit.distance:.4f}  {hit.slide}{whose}"
    return [first] if hit.reasons is None else [first, f"       {hit.reasons.sentence}"]

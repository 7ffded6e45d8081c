"""`panther embed`."""

import shutil
import time
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from panther.cli import _common as common


class Dtype(StrEnum):
    """Types of numbers that embeddings are stored in."""

    float32 = "float32"
    float16 = "float16"


class By(StrEnum):
    """What one embedding stands for."""

    slide = "slide"
    patient = "patient"


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(embed)


def embed(
    features: common.FeaturesArgument,
    prototypes: Annotated[Path, typer.Option("-p", "--prototypes", help="Prototype file.", show_default=False)],
    output: common.OutputOption,
    method: Annotated[str, typer.Option(help="How patches become an embedding.")] = "panther",
    preset: Annotated[str, typer.Option(help="paper, published-code or calibrated.")] = "paper",
    readout: Annotated[str, typer.Option(help="all, wa, top or bottom.")] = "all",
    steps: Annotated[int | None, typer.Option(help="EM steps, instead of the preset's.")] = None,
    tau: Annotated[float | None, typer.Option(help="Pseudo-count of the prior, instead of the preset's.")] = None,
    temperature: Annotated[float | None, typer.Option(help="> 1 softens the posteriors.")] = None,
    table: common.TableOption = None,
    split: common.SplitOption = None,
    by: Annotated[By, typer.Option(help="One embedding per slide, or per patient (needs --table).")] = By.slide,
    dtype: Annotated[Dtype, typer.Option(help="Type of the stored numbers.")] = Dtype.float32,
    format: Annotated[str | None, typer.Option(help="h5ad or npz; the output's ending by default.")] = None,
    workers: common.WorkersOption = 0,
    cluster: common.ClusterOption = None,
    device: common.DeviceOption = "cpu",
    as_json: common.JsonOption = False,
) -> None:
    """Turn every bag of FEATURES into one slide embedding; a killed run goes on where it was."""
    from panther.aggregators import embed_cohort
    from panther.execution import open_executor
    from panther.storage.atomic import check_writable
    from panther.storage.cohort import select_slides
    from panther.storage.embeddings import check_embedding_path, write_embeddings
    from panther.storage.prototypes import load_prototypes

    output = output.with_suffix(f".{format}") if format else output
    check_embedding_path(output)
    check_writable(output)
    options = {"preset": preset, "readout": readout, "steps": steps, "tau": tau, "temperature": temperature}
    options = {name: value for name, value in options.items() if value is not None}
    chosen = select_slides(features, table, split, by_patient=by is By.patient)
    working = output.with_name(f"{output.name}.partial")
    start = time.perf_counter()
    with open_executor(workers, cluster, threads=common.checked_device(device) != "cpu") as executor:
        embedded = embed_cohort(
            chosen.refs,
            load_prototypes(prototypes),
            method,
            options,
            executor=executor,
            device=device,
            partial_folder=working,
            track=common.track,
        )
    error = write_embeddings(replace(embedded, clinical=chosen.clinical), output, dtype.value)
    failures = {**chosen.problems, **embedded.failures}
    notes = [*chosen.notes, *_notes(embedded, error, working, failures)]
    if not failures:
        shutil.rmtree(working)
    lines = _lines(embedded, output, time.perf_counter() - start)
    common.report(_result(embedded, output, error), lines, failures, as_json=as_json, notes=notes)


def _result(embedded: Any, output: Path, error: float) -> dict[str, Any]:
    return {
        "output": str(output),
        "samples": len(embedded.samples),
        "dim": int(embedded.vectors.shape[1]),
        "bytes": output.stat().st_size,
        "rounding_error": error,
        "settings": dict(embedded.settings),
        "observations": {"sample": embedded.samples, **embedded.observations},
    }


def _lines(embedded: Any, output: Path, seconds: float) -> list[str]:
    count, dim = embedded.vectors.shape
    size = output.stat().st_size
    return [
        f"{count} embeddings of {dim:,} numbers in {seconds:.1f} s -> {output} ({size / 1e6:.1f} MB)",
        f'Open it with: python -c "import anndata; print(anndata.read_h5ad({str(output)!r}))"'
        if output.suffix == ".h5ad"
        else f'Open it with: python -c "import numpy; print(numpy.load({str(output)!r}).files)"',
    ]


def _notes(embedded: Any, error: float, working: Path, failures: dict[str, str]) -> list[str]:
    notes = []
    effective = embedded.observations.get("effective_prototypes", [])
    collapsed = [s for s, value in zip(embedded.samples, effective, strict=False) if value < 1.05]
    if collapsed and len(embedded.prototypes) > 1:
        notes.append(
            f"{len(collapsed)} of {len(effective)} samples collapse into one prototype, e.g. {collapsed[0]}: are they from another site "
            "or scanner than the prototypes? A higher --temperature or --preset calibrated may help."
        )
    absent = sum(1 for value in embedded.observations.get("absent_prototypes", []) if value)
    if absent:
        notes.append(
            f"{absent} of {len(embedded.samples)} samples lack at least one prototype (less than one patch): its mean and variance there "
            "say little; see the column absent_prototypes."
        )
    if error:
        notes.append(f"float16 storage changed no number by more than {error:.2g} of its column's largest.")
    if failures:
        notes.append(f"Finished rows are kept in {working}: mend the failed ones and run the same command again.")
    return notes

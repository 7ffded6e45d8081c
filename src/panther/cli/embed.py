"""`panther embed`."""

import time
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from panther.cli import _common as common
from panther.cli import _options as opt
from panther.cli._parsers import parse_names, parse_settings
from panther.errors import InputError


class Dtype(StrEnum):
    """Types of numbers that embeddings are stored in."""

    float32 = "float32"
    float16 = "float16"


def embed(
    features: opt.FeaturesArgument,
    output: opt.OutputOption,
    prototypes: Annotated[
        Path | None,
        typer.Option("-p", "--prototypes", help="Prototype file; mean, mean-std, max and top-k need none."),
    ] = None,
    method: Annotated[
        str,
        typer.Option(help="panther, ot, h2t, protocounts, deepsets; without prototypes mean, mean-std, max, top-k."),
    ] = "panther",
    preset: opt.PresetOption = None,
    readout: Annotated[str | None, typer.Option(help="panther: all (default), wa, top or bottom.")] = None,
    blocks: Annotated[
        str | None,
        typer.Option(
            help="panther: what follows the mixture's numbers: space (needs coordinates), tail, or both: space,tail."
        ),
    ] = None,
    setting: opt.SetOption = None,
    table: opt.TableOption = None,
    split: opt.SplitOption = None,
    slide_column: opt.SlideColumnOption = None,
    patient_column: opt.PatientColumnOption = None,
    site_column: opt.SiteColumnOption = None,
    level: opt.LevelOption = opt.Level.slide,
    dtype: Annotated[Dtype, typer.Option(help="Type of the stored numbers.")] = Dtype.float32,
    format: Annotated[
        str | None, typer.Option(help="h5ad, npz, or mixtures: {prob, mean, cov} of every slide as .mixtures.npz.")
    ] = None,
    encoder_name: opt.EncoderNameOption = None,
    mixed: opt.MixedOption = False,
    workers: opt.WorkersOption = "0",
    device: opt.DeviceOption = "auto",
    as_json: opt.JsonOption = False,
) -> None:
    """Turn every bag of FEATURES into one slide embedding."""
    from panther.aggregators import embed_cohort
    from panther.prototypes.centre import with_sites_of
    from panther.storage.clinical import select_slides
    from panther.storage.embeddings import check_columns, check_embedding_path, write_embeddings
    from panther.storage.inputs import check_output
    from panther.storage.prototypes import load_prototypes

    output = _named(output, format)
    check_embedding_path(output)
    options = parse_settings(setting, preset=preset, readout=readout)
    if blocks is not None:
        options["blocks"] = parse_names(blocks) or [blocks]
    said = common.reading(encoder_name, mixed)
    named = common.columns(slide_column, patient_column, site_column)
    chosen = select_slides(features, table, split, level=level.value, reading=said, columns=named)
    check_output(output, chosen.refs, prototypes, table)
    if chosen.clinical is not None:
        check_columns(chosen.clinical)
    start = time.perf_counter()
    fitted = None if prototypes is None else load_prototypes(prototypes)
    _check_tail(prototypes, fitted, options)
    _check_mixtures(output, fitted, method, options)
    with common.open_work(workers, chosen.refs, device) as work:
        if fitted is not None:
            fitted, more = with_sites_of(fitted, chosen.refs, chosen.table, work)
            chosen.notes.extend(more)
        embedded = embed_cohort(
            chosen.refs,
            fitted,
            method,
            options,
            work=work,
        )
    failures = {**chosen.problems, **embedded.failures}
    told = replace(embedded, clinical=chosen.clinical, failures=failures)
    error = write_embeddings(told, output, dtype.value)
    notes = [*chosen.notes, *_notes(embedded, error)]
    lines = _lines(embedded, output, time.perf_counter() - start)
    common.report(_result(embedded, output, error), lines, failures, as_json=as_json, notes=notes)


def _named(output: Path, format: str | None) -> Path:
    """Output with the ending of ``format``; other dots belong to the name."""
    if format is None:
        return output
    from panther.limits import check_choice

    check_choice("format", format, ("h5ad", "npz", "mixtures"))
    stem = output.stem if output.suffix in (".h5ad", ".npz") else output.name
    return output.with_name(f"{stem}.{'mixtures.npz' if format == 'mixtures' else format}")


def _check_tail(path: Path | None, prototypes: Any, options: dict[str, Any]) -> None:
    """Refuse, naming the file, prototypes that cannot say what a tail is."""
    if "tail" in (options.get("blocks") or ()) and prototypes is not None and prototypes.surprise is None:
        raise InputError(
            f"{path}: does not say how surprising a training patch can be, which the block `tail` compares with; it was fitted "
            "elsewhere. Fit the prototypes again with `panther prototypes`, or leave tail out of --blocks."
        )


def _check_mixtures(output: Path, prototypes: Any, method: str, options: dict[str, Any]) -> None:
    """Refuse, before the work, to write as mixtures what are none."""
    from panther.aggregators import build
    from panther.storage.embedding_files.mixtures import count_components
    from panther.storage.embeddings import MIXTURES

    if output.name.endswith(MIXTURES) and prototypes is None:
        raise InputError(f"{output}: mixtures stand on prototypes; give their file with -p.")
    if output.name.endswith(MIXTURES):
        count_components(build(method, prototypes, options).columns())


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


def _notes(embedded: Any, error: float) -> list[str]:
    notes = []
    effective = embedded.observations.get("effective_prototypes", [])
    collapsed = [s for s, value in zip(embedded.samples, effective, strict=False) if value < 1.05]
    if collapsed and embedded.weights.shape[1] > 1:
        notes.append(
            f"{len(collapsed)} of {len(effective)} samples collapse into one prototype, e.g. {collapsed[0]}: are they from another site "
            "or scanner than the prototypes? A higher --set temperature=10 or --preset calibrated may help."
        )
    absent = sum(1 for value in embedded.observations.get("absent_prototypes", []) if value)
    if absent:
        notes.append(
            f"{absent} of {len(embedded.samples)} samples lack at least one prototype (less than one patch): its mean and variance there "
            "say little; see the column absent_prototypes."
        )
    inferred = sum(1 for value in embedded.observations.get("inferred_step", []) if value)
    if inferred:
        notes.append(
            f"The files of {inferred} of {len(embedded.samples)} samples do not tell how far apart patches lie; the commonest distance of "
            "their coordinates was taken."
        )
    if error:
        notes.append(f"float16 storage changed no number by more than {error:.2g} of its column's largest.")
    return notes

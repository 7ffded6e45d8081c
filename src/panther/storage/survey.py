"""Descriptions of files and folders, from their headers."""

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from panther.engine import LOCAL, Work, collect
from panther.errors import InputError, NotABagError, not_finite
from panther.statistics import first_bad_row
from panther.storage.bags import files_below, one_of
from panther.storage.clinical import read_clinical
from panther.storage.embeddings import open_anndata
from panther.storage.files import read_errors
from panther.storage.names import DICOM, SUFFIXES, as_text, not_text
from panther.storage.prototypes import load_prototypes
from panther.storage.readers import BAG_SUFFIXES, is_store, open_bag
from panther.storage.slide_vectors import SINGLE, read_files
from panther.storage.tensors import kind_of_file, read_tensors
from panther.store import is_stored_embeddings


def survey(path: Path, *, deep: bool = False) -> dict[str, Any]:
    """Describe one file: its kind and metadata, or the problem; ``deep`` reads all features to find NaN."""
    suffix = path.suffix.lower()
    if as_text(path.name) is None and suffix in (*BAG_SUFFIXES, *SUFFIXES, *OTHERS):
        return {"kind": "problem", "problem": not_text(path)}
    try:
        if is_stored_embeddings(path):
            return _embeddings(path)
        if suffix in BAG_SUFFIXES:
            return _bag(path, deep)
        if suffix in OTHERS:
            return OTHERS[suffix](path)
        is_image = suffix in (*SUFFIXES, DICOM)
        return (
            {"kind": "slide image", "format": suffix[1:], "bytes": path.stat().st_size}
            if is_image
            else {"kind": "other"}
        )
    except InputError as error:
        return {"kind": "problem", "problem": str(error)}


def survey_all(
    path: Path, files: Sequence[Path], *, deep: bool = False, work: Work = LOCAL
) -> tuple[dict[Path, dict[str, Any]], dict[str, str]]:
    """Describe the ``files`` of a folder; also returns problems by file, or by slide if it has several files."""
    values, failures = collect(partial(survey, deep=deep), files, "inspecting", work)
    failed = {name: {"kind": "problem", "problem": reason} for name, reason in failures.items()}
    contents = {file: values.get(str(file)) or failed[str(file)] for file in files}
    problems = {str(file): about["problem"] for file, about in contents.items() if "problem" in about}
    return contents, problems | twice(path, contents)


def files_of(path: Path) -> list[Path]:
    """The file, or all files of the folder without hidden ones."""
    if not path.is_dir() or is_store(path):
        if not path.is_file() and not is_store(path) and not path.is_symlink():
            raise InputError(f"{path}: there is no such file or folder.")
        return [path]
    files = files_below(path)
    if not files:
        raise InputError(f"{path}: the folder is empty")
    return files


def twice(folder: Path, contents: dict[Path, dict[str, Any]]) -> dict[str, str]:
    """Problems of slides with several different bags, by the rule of `list_bags`."""
    by_slide: dict[str, list[Path]] = {}
    for path, about in contents.items():
        if about["kind"] == "bag":
            by_slide.setdefault(about["slide"], []).append(path)
    problems = {}
    for slide, files in by_slide.items():
        try:
            if len(files) > 1:
                one_of(folder, slide, files)
        except InputError as error:
            problems[slide] = str(error)
    return problems


def _bag(path: Path, deep: bool) -> dict[str, Any]:
    try:
        bag = open_bag(path)
    except NotABagError as error:
        return _not_a_bag(path, error)
    except InputError:
        if path.suffix.lower() not in SINGLE:
            raise
        with suppress(InputError):
            vector = read_files(path, [path])
            about = {"kind": "slide vector", "slide": vector.names[0], "format": vector.layout, "dim": vector.dim}
            return about | {"encoder": vector.encoder, "level": vector.level}
        raise
    about = {
        "kind": "bag",
        "slide": bag.slide_id,
        "format": bag.format,
        "patches": len(bag),
        "dim": bag.dim,
        "dtype": str(bag.features.dtype).removeprefix("torch."),
        "encoder": bag.encoder,
        **({} if bag.checkpoint is None else {"checkpoint": bag.checkpoint}),
        "coords": bag.places is not None,
        **({} if bag.population is None else {"sampled_from": bag.population.total}),
        "patch_spec": bag.spec.known(),
    }
    if deep and (row := first_bad_row(bag.features)) is not None:
        about["problem"] = str(not_finite(str(path), row))
    return about


def _not_a_bag(path: Path, error: InputError) -> dict[str, Any]:
    """Files without features: coordinates, prototypes, models, images."""
    if is_store(path):
        return {"kind": "slide image", "format": "zarr", "note": str(error)}
    if path.suffix.lower() != ".safetensors":
        return {"kind": "coordinates", "note": str(error)}
    kind = kind_of_file(path)
    if kind == "prototypes":
        return _prototypes(path)
    return {"kind": "other", "note": str(error)} if kind is None else {"kind": kind, **_header(path, kind)}


def _header(path: Path, kind: str) -> dict[str, Any]:
    """Facts in the header of a model or a tissue classifier."""
    with read_errors(path, kind):
        about = json.loads(read_tensors(path, f"panther_{kind.replace(' ', '_')}", with_tensors=False)[0] or "{}")
        method, head, task, training = (about.get(key) or {} for key in ("method", "head", "task", "about"))
        facts = {
            **{"method": method.get("name"), "head": head.get("name"), "loss": task.get("loss")},
            "outputs": task.get("names") or about.get("classes"),
            **{name: about.get(name) for name in ("encoder", "dim", "patch_spec", "version")},
            "samples": len(training.get("samples") or ()) or None,
        }
    return {name: value for name, value in facts.items() if value is not None}


def _prototypes(path: Path) -> dict[str, Any]:
    p = load_prototypes(path)
    about = {"kind": "prototypes", "prototypes": len(p), "dim": p.dim, "encoder": p.encoder}
    return about | {"patch_spec": p.spec.known(), "slides": len(p.slides), "version": p.version}


def _embeddings(path: Path) -> dict[str, Any]:
    with read_errors(path, path.suffix), open_anndata(path) as file:
        more = {
            name: list(value.shape) for name, value in dict(file.get("obsm", {})).items() if hasattr(value, "shape")
        }
        about = {"kind": "embeddings", "shape": list(file["X"].shape), "dtype": str(file["X"].dtype)}
        return about | ({"obsm": more} if more else {})


def _table(path: Path) -> dict[str, Any]:
    """Table of slides or patients, e.g. clinical; other tables are of kind `other`."""
    try:
        table = read_clinical(path)
    except InputError:
        return {"kind": "other"}
    patients = len(set(table.who.patient)) if table.who.patients_known else None
    about = {"kind": "table of slides", "slides": len(table.who.slide), "patients": patients}
    return about | {"columns": list(table.rows.columns)}


OTHERS: dict[str, Callable[[Path], dict[str, Any]]] = {
    ".pkl": _prototypes,
    ".h5ad": _embeddings,
    **dict.fromkeys((".csv", ".tsv"), _table),
}

"""Descriptions of files and folders, from their headers."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from panther.engine import LOCAL, Work, collect
from panther.errors import InputError, NotABagError, not_finite
from panther.machine import reading
from panther.statistics import first_bad_row
from panther.storage.bags import files_below, one_of
from panther.storage.clinical import read_clinical
from panther.storage.embeddings import load_published_embeddings
from panther.storage.files import read_errors
from panther.storage.names import SLIDE_SUFFIXES, as_text, not_text
from panther.storage.prototypes import load_prototypes
from panther.storage.readers import BAG_SUFFIXES, open_bag
from panther.storage.slide_vectors import SINGLE, read_files
from panther.storage.tensors import kind_of_file, load_arrays


def survey(path: Path, *, deep: bool = False) -> dict[str, Any]:
    """Describe one file: its kind and metadata, or the problem; ``deep`` reads all features to find NaN."""
    suffix = path.suffix.lower()
    if as_text(path.name) is None and suffix in (*BAG_SUFFIXES, *OTHERS):
        return {"kind": "problem", "problem": not_text(path)}
    try:
        if suffix in BAG_SUFFIXES:
            return _bag(path, deep)
        return OTHERS[suffix](path) if suffix in OTHERS else {"kind": "other"}
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
    if not path.is_dir():
        if not path.is_file() and not path.is_symlink():
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
        if path.suffix.lower() in SINGLE and (about := _slide_vector(path)) is not None:
            return about
        raise
    about = {
        "kind": "bag",
        "slide": bag.slide_id,
        "format": bag.format,
        "patches": len(bag),
        "dim": bag.dim,
        "dtype": str(bag.features.dtype).removeprefix("torch."),
        "encoder": bag.encoder,
        "coords": bag.places is not None,
        "patch_spec": bag.spec.known(),
    }
    if deep and (row := first_bad_row(bag.features)) is not None:
        about["problem"] = str(not_finite(str(path), row))
    return about


def _slide_vector(path: Path) -> dict[str, Any] | None:
    """Vector of a slide encoder; None for other files."""
    try:
        vector = read_files(path, [path])
    except InputError:
        return None
    about = {"kind": "slide vector", "slide": vector.names[0], "format": vector.layout, "dim": vector.dim}
    return about | {"encoder": vector.encoder, "level": vector.level}


def _not_a_bag(path: Path, error: InputError) -> dict[str, Any]:
    """Files without features: coordinates, prototypes, models."""
    if path.suffix.lower() != ".safetensors":
        return {"kind": "coordinates", "note": str(error)}
    kind = kind_of_file(path)
    return _prototypes(path) if kind == "prototypes" else {"kind": kind or "other", "note": str(error)}


def _prototypes(path: Path) -> dict[str, Any]:
    p = load_prototypes(path)
    about = {"kind": "prototypes", "prototypes": len(p), "dim": p.dim, "encoder": p.encoder}
    return about | {"patch_spec": p.spec.known(), "slides": len(p.slides), "version": p.version}


def _published(path: Path) -> dict[str, Any]:
    """Pickles of the published code: prototypes or embeddings, never executed."""
    content = load_arrays(path)
    if isinstance(content, dict) and "prototypes" in content:
        return _prototypes(path)
    parts = load_published_embeddings(path)
    return {"kind": "published embeddings", "parts": {name: list(x.shape) for name, x in parts.items()}}


def _embeddings(path: Path) -> dict[str, Any]:
    import h5py

    with read_errors(path, ".h5ad"), reading(), h5py.File(path, "r") as file:
        more = {name: list(value.shape) for name, value in file.get("obsm", {}).items() if hasattr(value, "shape")}
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


def _image(path: Path) -> dict[str, Any]:
    return {"kind": "slide image", "format": path.suffix[1:].lower(), "bytes": path.stat().st_size}


OTHERS: dict[str, Callable[[Path], dict[str, Any]]] = {
    ".pkl": _published,
    ".h5ad": _embeddings,
    **dict.fromkeys((".csv", ".tsv"), _table),
    **{suffix: _image for suffix in SLIDE_SUFFIXES if suffix not in BAG_SUFFIXES},
}

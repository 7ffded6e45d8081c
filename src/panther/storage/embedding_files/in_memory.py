"""Embeddings that are in memory: what `embed_cohort` returns, and the AnnData that is made of it or that scanpy has worked on."""

import json
from typing import Any

import numpy as np
import torch

from panther.errors import InputError
from panther.storage.embedding_files.opened import Embeddings, mixture_components
from panther.storage.embedding_files.reading import check_weights
from panther.storage.embeddings import EmbeddingTable, column_name

SOURCE = "The embeddings"


def is_in_memory(given: object) -> bool:
    """Whether it is a table of embeddings, or AnnData, which is not imported to find out."""
    anndata = all(hasattr(given, name) for name in ("obs_names", "var_names", "obsm", "uns"))
    return anndata or isinstance(given, (EmbeddingTable, Embeddings))


def of_memory(given: Any) -> Embeddings:
    """Embeddings of what :func:`is_in_memory` knows."""
    if isinstance(given, Embeddings):
        return given
    return _of_table(given) if isinstance(given, EmbeddingTable) else _of_anndata(given)


def _of_table(table: EmbeddingTable) -> Embeddings:
    names = [column_name(*column) for column in table.columns]
    columns = {name: [str(value) for value in values] for name, values in table.observations.items()}
    if table.clinical is not None:
        rows = table.clinical.reindex(table.samples)
        columns |= {str(name): [str(value) for value in rows[name]] for name in rows.columns}
    weights = None if table.weights is None else np.asarray(table.weights, np.float64)
    vectors = torch.from_numpy(np.ascontiguousarray(table.vectors))
    mixtures, made_with = mixture_components(names), table.prototypes.content_hash()
    return Embeddings(SOURCE, tuple(table.samples), vectors, weights, mixtures, columns, made_with, table.settings)


def _of_anndata(data: Any) -> Embeddings:
    """The same of AnnData: `X`, `obs`, the proportions in `obsm["pi"]`, and what `panther embed` has noted in `uns`."""
    matrix = data.X.todense() if hasattr(data.X, "todense") else data.X
    vectors, samples = np.asarray(matrix), [str(name) for name in data.obs_names]
    if vectors.ndim != 2 or vectors.dtype.kind != "f" or 0 in vectors.shape or len(set(samples)) != len(samples):
        raise InputError(
            "The AnnData has no row of floating-point numbers in `X` for each of its samples, each there once; give what "
            "`to_anndata()` of embeddings returns."
        )
    columns = {str(name): [str(value) for value in data.obs[name]] for name in data.obs.columns}
    weights = np.asarray(data.obsm["pi"], np.float64) if "pi" in data.obsm else None
    if weights is not None:
        check_weights(SOURCE, samples, weights, columns)
    about = data.uns.get("panther", {})
    mixtures, made_with = mixture_components([str(name) for name in data.var_names]), about.get("prototypes_hash")
    settings = {name: _before_stored(value) for name, value in about.get("settings", {}).items()}
    rows = torch.from_numpy(np.ascontiguousarray(vectors))
    known = None if made_with is None else str(made_with)
    return Embeddings(SOURCE, tuple(samples), rows, weights, mixtures, columns, known, settings)


def _before_stored(value: Any) -> Any:
    """Setting as it was before AnnData was made, which has lists as text."""
    return json.loads(value) if isinstance(value, str) and value.startswith("[") else value

"""Slide embeddings on disk: AnnData that others open, and a plain .npz."""

import json
from dataclasses import replace

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest
import torch

from panther.errors import InputError
from panther.storage.embeddings import (
    EmbeddingTable,
    check_embedding_path,
    read_vectors,
    read_weights,
    write_embeddings,
)
from panther.types import Prototypes

C, D = 3, 2


@pytest.fixture
def table():
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(4, C * (1 + 2 * D))).astype(np.float32)
    columns = [
        (c, s, j) for c in range(C) for s, n in (("weight", 0), ("mean", D), ("variance", D)) for j in range(n or 1)
    ]
    columns = [(c, s, -1 if s == "weight" else j) for c, s, j in columns]
    return EmbeddingTable(
        samples=["007", "b", "c", "d"],
        vectors=vectors,
        observations={"n_patches": [5, 6, 7, 8], "effective_prototypes": [1.5, 2.0, 2.5, 3.0]},
        weights=vectors[:, :: 1 + 2 * D],
        columns=columns,
        prototypes=Prototypes(torch.arange(C * D).reshape(C, D).float(), encoder="uni_v1"),
        settings={"method": "panther", "preset": "paper", "steps": None, "tau": 0.5, "slides": ["a"]},
    )


@pytest.fixture
def clinical():
    return pd.DataFrame(
        {
            "slide_id": ["d", "c", "007", "other"],
            "age": [50.5, np.nan, 60.0, 1.0],
            "grade": [1, 2, 3, 4],
            "sex": ["f", None, "m", "f"],
            "mixed": [1, "x", None, 2.5],
            "dead": [True, None, False, True],
            "Gleason/Score": [1, 2, 3, 4],
            "_index": [9, 8, 7, 6],
            "n_patches": [-1, -1, -1, -1],
            "when": pd.to_datetime(["2020-01-01"] * 4),
            3: [1.0, 2.0, 3.0, 4.0],
        },
        index=["d", "c", "007", "other"],
    )


def test_an_h5ad_opens_in_anndata_and_holds_what_it_should(table, tmp_path):
    path = tmp_path / "slides.h5ad"
    assert write_embeddings(table, path) == 0.0
    data = anndata.read_h5ad(path)
    np.testing.assert_array_equal(data.X, table.vectors)
    assert data.X.dtype == np.float32
    assert list(data.obs_names) == table.samples
    assert list(data.obs["n_patches"]) == [5, 6, 7, 8]
    np.testing.assert_array_equal(data.obsm["pi"], table.weights)
    assert set(data.var["statistic"]) == {"pi", "mu", "sigma"}
    assert list(data.var_names[: 1 + 2 * D]) == ["C0:pi", "C0:mu:0", "C0:mu:1", "C0:sigma:0", "C0:sigma:1"]
    # X can be taken apart with var alone
    np.testing.assert_array_equal(data[:, data.var["statistic"] == "pi"].X, table.weights)
    mean = data[:, (data.var["prototype"] == "C1") & (data.var["statistic"] == "mu")]
    assert list(mean.var["dimension"]) == [0, 1]
    np.testing.assert_array_equal(mean.X, table.vectors[:, 6:8])
    about = data.uns["panther"]
    np.testing.assert_array_equal(about["prototypes"], table.prototypes.centroids)
    assert about["encoder"] == "uni_v1"
    assert about["settings"]["tau"] == 0.5
    assert json.loads(about["settings"]["steps"]) is None
    assert about["prototypes_hash"] == table.prototypes.content_hash()


def test_clinical_columns_of_any_kind_travel_along(table, clinical, tmp_path):
    write_embeddings(replace(table, clinical=clinical), tmp_path / "s.h5ad")
    obs = anndata.read_h5ad(tmp_path / "s.h5ad").obs
    assert list(obs.index) == table.samples
    assert obs.loc["007", "age"] == 60.0
    assert obs.loc["d", "sex"] == "f"
    assert obs.loc["c", "mixed"] == "x"
    assert pd.isna(obs.loc["c", "sex"])
    assert pd.isna(obs.loc["b", "age"])  # a slide without a clinical row is kept
    assert list(obs["n_patches"]) == [5, 6, 7, 8]  # what was measured, not what the table says
    assert obs.loc["007", "Gleason_Score"] == 3
    assert obs.loc["d", "3"] == 1.0


def test_the_same_table_gives_the_same_bytes(table, clinical, tmp_path):
    for suffix in (".h5ad", ".npz"):
        for name in ("a", "b"):
            write_embeddings(replace(table, clinical=clinical), tmp_path / f"{name}{suffix}")
        assert (tmp_path / f"a{suffix}").read_bytes() == (tmp_path / f"b{suffix}").read_bytes()


def test_an_npz_needs_numpy_alone_and_no_pickle(table, clinical, tmp_path):
    write_embeddings(replace(table, clinical=clinical), tmp_path / "s.npz")
    with np.load(tmp_path / "s.npz", allow_pickle=False) as file:
        content = {name: file[name] for name in file.files}
    np.testing.assert_array_equal(content["X"], table.vectors)
    np.testing.assert_array_equal(content["pi"], table.weights)
    assert list(content["samples"]) == table.samples
    assert content["columns"][1] == "C0:mu:0"
    assert list(content["obs_n_patches"]) == [5, 6, 7, 8]
    assert content["obs_age"].dtype.kind == "f"  # numbers stay numbers
    assert list(content["obs_sex"]) == ["m", "", "", "f"]
    assert json.loads(str(content["panther"]))["prototypes"] == table.prototypes.centroids.tolist()
    assert "allow_pickle" not in content


def test_float16_states_its_error_and_the_statement_is_true(table, tmp_path):
    stated = write_embeddings(table, tmp_path / "s.h5ad", "float16")
    stored = anndata.read_h5ad(tmp_path / "s.h5ad").X
    assert stored.dtype == np.float16
    error = np.abs(stored.astype(np.float64) - table.vectors).max(0) / np.abs(table.vectors).max(0)
    assert 0 < stated < 2**-11 * 1.01
    assert error.max() <= stated * (1 + 1e-6)
    with h5py.File(tmp_path / "s.h5ad") as file:
        assert file["X"].id.get_storage_size() == 2 * table.vectors.size


@pytest.mark.parametrize("value", [65_520.0, -1e6])
def test_numbers_too_large_for_float16_are_refused_and_nothing_is_written(table, tmp_path, value):
    table.vectors[2, 3] = value
    with pytest.raises(InputError, match="too large for float16"):
        write_embeddings(table, tmp_path / "s.h5ad", "float16")
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_ending_is_refused(tmp_path):
    for name in ("slides", "slides.csv", "slides.h5ad.gz"):
        with pytest.raises(InputError, match=r"\.h5ad or \.npz"):
            check_embedding_path(tmp_path / name)


def test_vectors_are_read_as_they_were_written(table, tmp_path):
    path = tmp_path / "slides.h5ad"
    write_embeddings(table, path)
    samples, vectors, made_with = read_vectors(path)
    assert samples == table.samples
    np.testing.assert_array_equal(vectors, np.asarray(table.vectors, np.float32))
    assert made_with == table.prototypes.content_hash()


@pytest.mark.parametrize("name", ["slides.h5ad", "slides.npz", "slides.csv"])
def test_files_without_vectors_are_refused(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(b"no embeddings")
    with pytest.raises(InputError, match=name):
        read_vectors(path)


@pytest.mark.parametrize("read", [read_vectors, lambda path: read_weights(path, "site")])
def test_a_missing_file_is_refused(tmp_path, read):
    with pytest.raises(InputError, match=r"none\.h5ad: there is no such file; write embeddings"):
        read(tmp_path / "none.h5ad")

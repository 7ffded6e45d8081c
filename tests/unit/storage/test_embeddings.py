"""Slide embeddings on disk: AnnData that others open, and a plain .npz."""

import json
from dataclasses import replace

import anndata
import numpy as np
import pandas as pd
import pytest
import torch

from panther.errors import InputError
from panther.storage.embeddings import (
    EmbeddingTable,
    check_embedding_path,
    open_embeddings,
    read_vectors,
    read_weights,
    write_embeddings,
)
from panther.storage.slide_vectors import read_slide_vectors
from panther.storage.survey import survey
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
    write_embeddings(table, path)
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


def test_unknown_endings_are_refused(tmp_path):
    for name in ("slides", "slides.csv", "slides.h5ad.gz"):
        with pytest.raises(InputError, match=name):
            check_embedding_path(tmp_path / name)


@pytest.mark.parametrize("suffix", [".h5ad", ".zarr"])
def test_vectors_are_read_as_they_were_written(table, tmp_path, suffix):
    path = tmp_path / f"slides{suffix}"
    write_embeddings(table, path)
    samples, vectors, made_with = read_vectors(path)
    assert samples == table.samples
    np.testing.assert_array_equal(vectors, np.asarray(table.vectors, np.float32))
    assert made_with == table.prototypes.content_hash()


@pytest.mark.parametrize("read", [read_vectors, lambda path: read_weights(path, "site")])
def test_files_without_vectors_and_missing_ones_are_refused(tmp_path, read):
    for name in ("slides.h5ad", "slides.zarr", "slides.npz", "slides.csv", "none.h5ad", "none.zarr"):
        if not name.startswith("none"):
            (tmp_path / name).write_bytes(b"no embeddings")
        with pytest.raises(InputError, match=name):
            read(tmp_path / name)


def test_a_zarr_is_what_the_h5ad_is_and_replaces_embeddings_only(table, clinical, tmp_path):
    table = replace(table, clinical=clinical.set_index("slide_id"), weights=np.abs(table.weights))
    path = tmp_path / "slides.zarr"
    for _ in range(2):  # the second replaces the first
        write_embeddings(table, path)
        write_embeddings(table, path.with_suffix(".h5ad"))
        assert json.loads((path / "zarr.json").read_text())["zarr_format"] == 3
        zarr, h5ad = anndata.read_zarr(path), anndata.read_h5ad(path.with_suffix(".h5ad"))
        pd.testing.assert_frame_equal(zarr.obs, h5ad.obs)
        pd.testing.assert_frame_equal(zarr.var, h5ad.var)
        np.testing.assert_array_equal(zarr.obsm["pi"], h5ad.obsm["pi"])
    opened, other = open_embeddings(path), open_embeddings(path.with_suffix(".h5ad"))
    assert (opened.columns, opened.settings, opened.mixtures) == (other.columns, other.settings, other.mixtures)
    assert read_slide_vectors(path, "obsm/pi").vectors.shape == (4, C)
    assert survey(path) == survey(path.with_suffix(".h5ad"))

    store = tmp_path / "slide.zarr"  # of wsidata, or an image
    (store / "images").mkdir(parents=True)
    with pytest.raises(InputError, match=r"slide\.zarr: found a folder"):
        write_embeddings(table, store)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["slide.zarr", "slides.h5ad", "slides.zarr"]


def test_a_zarr_that_cannot_be_finished_leaves_the_earlier_one(table, tmp_path):
    path = tmp_path / "slides.zarr"
    write_embeddings(table, path)
    bad = replace(table, settings={"method": object()})
    with pytest.raises(Exception, match="object"):
        write_embeddings(bad, path)
    assert read_vectors(path)[0] == table.samples
    assert [p.name for p in tmp_path.iterdir()] == ["slides.zarr"]

"""Stores of wsidata (SpatialData): features are read, results are written back, and LazySlide finds them."""

import shutil
import struct
import warnings
from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr

import panther
from panther.errors import InputError

SIDE, ACROSS = 256, 6
pytestmark = pytest.mark.filterwarnings("ignore:zarr v3 autosharding")


def make_store(path: Path, tables: tuple[str, ...] = ("uni_tiles",), seed: int = 0, count: int = 30) -> np.ndarray:
    """A store as wsidata writes it, without wsidata; returns the corners of the tiles in the order of the tables."""
    root = zarr.open_group(path, mode="w", zarr_format=3)
    spec = {"width": SIDE, "height": SIDE, "stride_width": SIDE, "stride_height": SIDE, "mpp": 0.5, "ops_level": 0}
    root.attrs["tile_spec"] = {"tiles": spec}
    root.attrs["slide_properties"] = {"mpp": 0.5, "bounds": [100, 50, 9000, 9000]}
    corners = np.array([(100 + i % ACROSS * SIDE, 50 + i // ACROSS * SIDE) for i in range(count)])
    boxes = [[(x + SIDE, y), (x + SIDE, y + SIDE), (x, y + SIDE), (x, y), (x + SIDE, y)] for x, y in corners.tolist()]
    polygons = [struct.pack("<BIII10d", 1, 3, 1, 5, *np.ravel(box)) for box in boxes]
    root.create_group("shapes/tiles")
    pq.write_table(pa.table({"tile_id": range(count), "geometry": polygons}), path / "shapes/tiles/shapes.parquet")
    order = np.random.default_rng(seed).permutation(count)  # a table need not have the order of its shapes
    rng = np.random.default_rng(seed)
    for name in tables:
        features = (np.eye(3, 8)[rng.integers(0, 3, count)] * 9 + rng.normal(size=(count, 8))).astype("f4")
        obs = pd.DataFrame({"tile_id": order, "library_id": pd.Categorical(["tiles"] * count)}, index=order.astype(str))
        anndata.io.write_elem(root.require_group("tables"), name, anndata.AnnData(features, obs=obs))
        about = {"region": "tiles", "region_key": "library_id", "instance_key": "tile_id", "version": "0.2"}
        root[f"tables/{name}"].attrs.update({"spatialdata-encoding-type": "ngff:regions_table", **about})
    return corners[order] - [100, 50]


@pytest.fixture
def stores(tmp_path: Path) -> Path:
    for i in range(4):
        make_store(tmp_path / "slides" / f"s{i}.zarr", seed=i)
    return tmp_path / "slides"


def test_a_store_is_a_bag_with_the_places_of_its_tiles(tmp_path):
    corners = make_store(tmp_path / "a.b.zarr")
    bag = panther.open_bag(tmp_path / "a.b.zarr")
    assert (bag.slide_id, bag.format, bag.encoder, len(bag), bag.dim) == ("a.b", "wsidata", "uni", 30, 8)
    assert (bag.spec.mpp, bag.spec.size, bag.spec.size_level0, bag.spec.overlap) == (0.5, SIDE, SIDE, 0)
    np.testing.assert_array_equal(bag.coords, corners)  # from the corner of the scanned part
    table = anndata.read_zarr(tmp_path / "a.b.zarr/tables/uni_tiles")
    np.testing.assert_array_equal(bag.features[0:30].numpy(), table.X)


def test_of_several_tables_the_user_chooses(tmp_path):
    make_store(tmp_path / "s.zarr", ("uni_tiles", "virchow2_tiles"))
    with pytest.raises(InputError, match="uni_tiles"):
        panther.open_bag(tmp_path / "s.zarr")
    assert panther.open_bag(tmp_path / "s.zarr", encoder_name="virchow2").encoder == "virchow2"


def test_every_verb_takes_a_folder_of_stores_and_results_go_back(stores, tmp_path):
    contents = panther.inspect([stores]).files
    assert {about["format"] for about in contents.values()} == {"wsidata"}
    prototypes = panther.fit_prototypes(stores, n_prototypes=3)
    table = panther.embed_cohort(stores, prototypes).to_anndata()
    for _ in range(2):  # the second time the table is replaced, and never read as features
        assert set(panther.to_wsidata(stores, prototypes).values["tables"].values()) == {"panther_tiles"}
    for i in range(4):
        written = anndata.read_zarr(stores / f"s{i}.zarr/tables/panther_tiles")
        np.testing.assert_allclose(written.X.sum(1), 1, atol=1e-5)
        np.testing.assert_allclose(written.varm["pi"][:, 0], table.obsm["pi"][i], rtol=1e-5)
        np.testing.assert_allclose(
            written.uns["agg_ops"]["agg_slide"]["features"][0], np.asarray(table.X[i]).ravel(), rtol=1e-4, atol=1e-5
        )
        source = anndata.read_zarr(stores / f"s{i}.zarr/tables/uni_tiles")
        assert list(written.obs["tile_id"]) == list(source.obs["tile_id"])
        assert list(written.obs["prototype"]) == [f"C{c}" for c in written.X.argmax(1)]
    maps = panther.make_map(stores / "s0.zarr", prototypes)
    assert maps["s0"].labels.shape == (30,)


@pytest.mark.parametrize("damage", ["X", "shapes", "tiles", "empty"])
def test_a_damaged_store_is_one_line(tmp_path, damage):
    path = tmp_path / "s.zarr"
    make_store(path)
    if damage == "X":
        chunk = next((path / "tables/uni_tiles/X/c").rglob("*/*"))
        chunk.write_bytes(b"nonsense")
    elif damage == "shapes":
        (path / "shapes/tiles/shapes.parquet").write_bytes(b"PAR1")
    elif damage == "tiles":
        table = pq.read_table(path / "shapes/tiles/shapes.parquet")
        pq.write_table(table.slice(0, 5), path / "shapes/tiles/shapes.parquet")
    else:
        shutil.rmtree(path)
        path.mkdir()
    prototypes = panther.Prototypes(np.eye(3, 8, dtype="f4"))
    with pytest.raises(InputError, match=r"s\.zarr|s: |tile"):
        panther.make_map(path, prototypes)


def test_lazyslide_and_wsidata_find_what_was_written(tmp_path, shared_data):
    wsidata = pytest.importorskip("wsidata", reason="wsidata is not installed")
    lazyslide = pytest.importorskip("lazyslide", reason="lazyslide is not installed")
    import matplotlib.pyplot as plt

    slide = shared_data / "slides" / "CMU-1-Small-Region.svs"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wsi = wsidata.open_wsi(slide, store=str(tmp_path / "CMU.zarr"))
        lazyslide.pp.find_tissues(wsi)
        lazyslide.pp.tile_tissues(wsi, 256, mpp=0.5)
        count = len(wsi.shapes["tiles"])
        features = np.random.default_rng(0).normal(size=(count, 16)).astype("f4")
        wsidata.io.add_features(wsi, "uni_tiles", "tiles", features)
        wsi.write()
        bag = panther.open_bag(tmp_path / "CMU.zarr")
        np.testing.assert_array_equal(bag.features[0:count].numpy(), features)
        np.testing.assert_array_equal(bag.coords, wsi.shapes["tiles"].geometry.bounds[["minx", "miny"]].to_numpy())
        prototypes = panther.fit_prototypes([bag], n_prototypes=3)
        panther.to_wsidata(tmp_path / "CMU.zarr", prototypes, names={0: "tumour"})
        again = wsidata.open_wsi(slide, store=str(tmp_path / "CMU.zarr"))
        table = again.tables["panther_tiles"]
        assert list(table.var_names) == ["C0 tumour", "C1", "C2"]
        rows = pd.DataFrame({"wsi": [str(slide)], "store": [str(tmp_path / "CMU.zarr")]})
        collected = wsidata.agg_wsi(rows, feature_key="panther", tile_key="tiles", wsi_col="wsi", store_col="store")
        vector = panther.embed(bag, prototypes).vector.numpy()
        np.testing.assert_allclose(np.asarray(collected.X)[0], vector, rtol=1e-5, atol=1e-6)
        figure, axes = plt.subplots()
        lazyslide.pl.tiles(again, feature_key="panther", color="C0 tumour", ax=axes)
        figure.savefig(tmp_path / "tiles.png")
        plt.close(figure)
    assert (tmp_path / "tiles.png").stat().st_size > 10_000

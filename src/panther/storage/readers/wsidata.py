"""wsidata's stores (SpatialData, `slide.zarr` beside the slide): features of tiles as bags, and results written back as another table.

Features are `tables/NAME` (AnnData; `obs.tile_id`), tiles `shapes/KEY` (rectangles at level 0), their geometry `attrs["tile_spec"][KEY]`.
Reading and writing need zarr, which comes with anndata, and neither wsidata nor spatialdata.
"""

import warnings
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from panther.errors import InputError, NotABagError, listed
from panther.machine import reading
from panther.patches import same_encoder
from panther.storage.readers.base import check_numbers
from panther.storage.readers.h5 import StoredRows
from panther.types import Bag, PatchSpec

RECTANGLE = np.dtype([("order", "u1"), ("head", "<u4", 3), ("points", "<f8", (5, 2))])  # WKB, little endian
WRITTEN = "panther"  # name of the tables that are written


@dataclass(frozen=True)
class StoredTable:
    """A table of tile features."""

    path: Path  # of the store
    name: str
    tiles: str  # its tiles in `shapes`

    @property
    def model(self) -> str:
        """Name of the encoder, `uni` of `uni_tiles`."""
        return self.name.removesuffix(f"_{self.tiles}")


class ZarrRows(StoredRows):
    """Rows (N, d) of an array, decoded when they are sliced."""

    @cached_property
    def _array(self) -> Any:
        return _open(self.path)[self.name]

    def __getitem__(self, rows: slice) -> Tensor:
        with reading():
            return torch.from_numpy(np.ascontiguousarray(self._array[rows]))


@dataclass(frozen=True)
class TilePlaces:
    """Corners of the tiles in the order of a table, read when called."""

    table: StoredTable

    def __call__(self) -> Tensor:
        """Return (N, 2), pixels of level 0 from the corner of the scanned part."""
        root = _open(self.table.path)
        boxes = _boxes(self.table)
        origin = (root.attrs.get("slide_properties") or {}).get("bounds") or (0, 0)
        key = root[f"tables/{self.table.name}"].attrs.get("instance_key", "tile_id")
        ids = np.asarray(root[f"tables/{self.table.name}/obs/{key}"][:])
        missing = [int(tile) for tile in ids if int(tile) not in boxes]
        if missing:
            raise InputError(f"tile {missing[0]} of {self.table.name!r} is not in the shapes {self.table.tiles!r}")
        corners = np.array([boxes[int(tile)][:2] for tile in ids], np.float64).reshape(-1, 2) - np.array(origin[:2])
        return torch.from_numpy(corners.round().astype(np.int64))


def read_store(path: Path, encoder_name: str | None) -> Bag:
    """Bag of a store; of several tables that of ``encoder_name``."""
    root = _open(path)
    if "tables" not in root or "shapes" not in root:
        what = (
            "an OME-Zarr image"
            if "multiscales" in root.attrs or "ome" in root.attrs
            else f"zarr with {listed(sorted(root), 4)}"
        )
        raise NotABagError(f"holds no tables of tile features; it is {what}")
    tables = tables_of(path, root)
    if not tables:
        raise NotABagError("holds no tables of tile features; extract them with lazyslide.tl.feature_extraction")
    matching = [t for t in tables if encoder_name in (t.name, t.model) or same_encoder(t.model, encoder_name)]
    if len(matching) != 1:
        names = listed([table.name for table in tables], 6)
        raise InputError(f"encoder_name: found tables {names}, expected the name of one of them")
    (table,) = matching
    name = f"tables/{table.name}/X"
    array = root[name]
    if not hasattr(array, "shape"):
        raise InputError(f"the table {table.name!r} is sparse, expected features of tiles")
    check_numbers(f"the table {table.name!r}", array.dtype)
    places = TilePlaces(table)
    spec = (root.attrs.get("tile_spec") or {}).get(table.tiles) or {}
    slide = root.attrs.get("slide_properties") or {}
    width, stride = spec.get("width"), spec.get("stride_width")
    side = next(iter(_boxes(table).values()), None)
    geometry = PatchSpec(
        spec.get("mpp"),
        None if width is None else int(width),
        size_level0=None if side is None else round(side[2]),
        overlap=0 if not width or not stride else max(0, round(width - stride)),
        mpp_level0=slide.get("mpp"),
    )
    rows = ZarrRows(path, name, (int(array.shape[0]), int(array.shape[1])), array.dtype)
    return Bag(path.stem, rows, places, geometry, table.model, "wsidata", path)


def tables_of(path: Path, root: Any) -> list[StoredTable]:
    """Tables of tile features that panther did not write."""
    tables = []
    for name, group in root["tables"].groups():
        region = group.attrs.get("region")
        tiles = region[0] if isinstance(region, list) and len(region) == 1 else region
        if isinstance(tiles, str) and tiles in root["shapes"] and not name.startswith(f"{WRITTEN}_"):
            tables.append(StoredTable(path, name, tiles))
    return sorted(tables, key=lambda table: table.name)


def _boxes(table: StoredTable) -> dict[int, tuple[float, float, float]]:
    """Corner and width of every tile, by its number."""
    import pyarrow.parquet as pq

    file = table.path / "shapes" / table.tiles / "shapes.parquet"
    rows = pq.read_table(file)
    names = rows.column_names
    number = next((name for name in ("tile_id", "__index_level_0__") if name in names), None)
    ids = range(len(rows)) if number is None else rows[number].to_pylist()
    polygons = rows["geometry"].to_pylist()
    if any(len(polygon) != RECTANGLE.itemsize for polygon in polygons):
        raise InputError(f"shapes {table.tiles!r}: found other polygons, expected rectangles of tiles")
    points = np.frombuffer(b"".join(polygons), RECTANGLE)["points"]
    low, high = points.min(1), points.max(1)
    return {
        int(i): (x, y, width) for i, (x, y), width in zip(ids, low.tolist(), (high - low)[:, 0].tolist(), strict=True)
    }


def _open(path: Path) -> Any:
    import zarr

    try:
        return zarr.open_group(path, mode="r", use_consolidated=False)
    except FileNotFoundError as error:  # zarr's for a folder without a group
        raise NotABagError("the folder holds no zarr group") from error


def write_back(bag: Bag, assignment: np.ndarray, vector: np.ndarray, names: list[str], about: dict[str, Any]) -> str:
    """Add the table `panther_TILES` to the store of ``bag``: posteriors (N, C) as X, the prototype of each tile, and the slide's vector.

    LazySlide draws its columns (`zs.pl.tiles(wsi, feature_key="panther_tiles", color="C0")`), and `wsidata.agg_wsi` finds the vector in
    `uns["agg_ops"]["agg_slide"]`. Returns the table's name.
    """
    import zarr
    from anndata import AnnData, io

    assert bag.path is not None
    assert isinstance(bag.places, TilePlaces)
    source = bag.places.table
    root: Any = zarr.open_group(bag.path, mode="r+", use_consolidated=False)
    group = root[f"tables/{source.name}"]
    obs = io.read_elem(group["obs"])
    keys = [group.attrs["region_key"], group.attrs["instance_key"]]
    obs = obs[keys].copy()
    obs["prototype"] = np.asarray(names, object)[assignment.argmax(1)] if len(assignment) else []
    obs["prototype"] = obs["prototype"].astype("category")
    table = AnnData(assignment.astype(np.float32), obs=obs)
    table.var_names = names
    table.varm["pi"] = about.pop("pi").reshape(-1, 1)
    table.uns["agg_ops"] = {"agg_slide": {"features": vector.astype(np.float32).reshape(1, -1), **about}}
    name = f"{WRITTEN}_{source.tiles}"
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # of anndata, about a default to come; of zarr, about the tables of shapes beside it
        io.write_elem(root["tables"], name, table)
        added = {key: value for key, value in group.attrs.items() if not key.startswith("encoding-")}
        root[f"tables/{name}"].attrs.update(added)
        zarr.consolidate_metadata(root.store)
    return name

"""Every polygon that is written is valid by the standard (OGC's, which QuPath's library judges by), whatever the shape."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from scipy import ndimage
from shapely.geometry import shape
from shapely.validation import explain_validity

from panther.explain.geometry import feature, grid, regions
from panther.explain.palette import PALETTE
from panther.slides.polygons import Tissue, trace, write_contours
from panther.slides.tissue import scaled as as_level0
from panther.storage.geojson import write_geojson
from panther.types import PatchSpec

masks = arrays(bool, array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=12))


def written(path: Path) -> list:
    return [shape(feature["geometry"]) for feature in json.loads(path.read_text())["features"]]


def holes_of(mask: np.ndarray) -> list[int]:
    """Of each region: pieces of what is not the region that no path over edges leaves."""
    labels, count = ndimage.label(np.pad(mask, 1))
    return [int(ndimage.label(labels != region)[1]) - 1 for region in range(1, count + 1)]


def check(polygons: list, area: float) -> None:
    assert [explain_validity(p) for p in polygons] == ["Valid Geometry"] * len(polygons)
    assert sum(p.area for p in polygons) == pytest.approx(area)


@settings(max_examples=300, deadline=None)
@given(masks, st.floats(1, 40))
def test_contours_of_any_tissue_are_valid_and_keep_area_and_holes(
    tmp_path_factory: pytest.TempPathFactory, mask: np.ndarray, scale: float
) -> None:
    path = tmp_path_factory.mktemp("contours") / "a.geojson"
    traced = trace(mask)
    write_contours(path, Tissue(tuple(traced)), {})
    check(written(path), mask.sum())
    assert [len(polygon.holes) for polygon in traced] == holes_of(mask)
    scaled = Tissue(tuple(as_level0(polygon, (scale, scale)) for polygon in traced))  # whole level-0 pixels
    write_contours(path, scaled, {})
    check(written(path), scaled.area)


@settings(max_examples=150, deadline=None)
@given(
    arrays(np.int8, array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=10), elements=st.integers(-1, 2)),
    st.integers(0, 9),
    st.sampled_from([16, 17.5, 224]),
)
def test_regions_of_any_map_are_valid_and_count_their_patches(
    tmp_path_factory: pytest.TempPathFactory, labels: np.ndarray, shift: int, side: float
) -> None:
    """Also where a second piece of tissue has a grid of its own, as CLAM's do."""
    rows, columns = np.nonzero(labels >= 0)
    if not len(rows):
        return
    coords = np.stack([columns, rows], 1) * float(side)
    coords[len(coords) // 2 :] += shift * (side + 1) / 10
    placed = grid(coords, PatchSpec(size=16, size_level0=side))  # type: ignore[arg-type]
    actual = regions(placed, labels[rows, columns])
    path = tmp_path_factory.mktemp("regions") / "a.geojson"
    write_geojson(path, [feature(region, {}, 0.5, PALETTE) for region in actual])
    polygons = written(path)
    cells = len(np.unique(np.c_[placed.cells, placed.layer], axis=0))
    check(polygons, cells * placed.pitch**2)
    assert [p.area / placed.pitch**2 for p in polygons] == pytest.approx([region.patches for region in actual])


def test_what_a_region_encloses_up_to_a_corner_is_a_hole() -> None:
    """Two arms meet at a corner only: the ring met itself there, which the standard forbids."""
    mask = np.array([[1, 1, 1], [1, 0, 1], [1, 1, 0]], bool)
    (polygon,) = trace(mask)
    assert len(polygon.outer) == 6
    assert [hole.shape for hole in polygon.holes] == [(4, 2)]
    assert polygon.area == 7

"""Contours: traced and drawn back without losing a pixel."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import ndimage

from panther.errors import InputError
from panther.slides.polygons import Polygon, Tissue, rasterise, read_contours, ring_area, trace, write_contours


@pytest.mark.parametrize("seed", range(8))
def test_tracing_and_drawing_give_the_mask_back(seed: int) -> None:
    """Noise, smooth or rough: regions touching at corners, holes in holes, everything at the border."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=(61, 83))
    mask = (ndimage.gaussian_filter(noise, seed / 2) if seed else noise) > 0
    polygons = trace(mask)
    np.testing.assert_array_equal(rasterise(Tissue(tuple(polygons)), (83, 61), 1.0), mask)
    assert sum(p.area for p in polygons) == mask.sum()
    assert len(polygons) == ndimage.label(mask)[1]


def test_a_ring_has_its_corners_only_and_holes_turn_the_other_way() -> None:
    mask = np.zeros((10, 12), bool)
    mask[2:8, 3:11] = True
    mask[4:6, 5:7] = False
    (polygon,) = trace(mask)
    assert sorted(map(tuple, polygon.outer.tolist())) == [(3, 2), (3, 8), (11, 2), (11, 8)]
    assert sorted(map(tuple, polygon.holes[0].tolist())) == [(5, 4), (5, 6), (7, 4), (7, 6)]
    assert ring_area(polygon.outer) == 48
    assert ring_area(polygon.holes[0]) == -4
    assert trace(np.zeros((5, 5), bool)) == []


def test_a_polygon_beyond_the_slide_is_cut_at_its_edge() -> None:
    triangle = Polygon(np.array([(-50.0, -50.0), (150.0, -50.0), (-50.0, 150.0)]))
    mask = rasterise(Tissue((triangle,)), (100, 100), 1.0)
    y, x = np.mgrid[:100, :100] + 0.5
    inside = x + y < 100
    away = np.abs(x + y - 100) > 1e-9
    np.testing.assert_array_equal(mask[away], inside[away])
    assert not rasterise(Tissue((Polygon(triangle.outer + 1e5),)), (100, 100), 1.0).any()


SQUARE = [[0, 0], [100, 0], [100, 100], [0, 100], [0, 0]]
HOLE = [[20, 20], [40, 20], [40, 40], [20, 40], [20, 20]]


def feature(geometry: dict, name: str | None = None) -> dict:
    properties = {"objectType": "annotation"} | ({"classification": {"name": name}} if name else {})
    return {"type": "Feature", "id": "x", "geometry": geometry, "properties": properties}


def polygon(*rings: list) -> dict:
    return {"type": "Polygon", "coordinates": list(rings)}


DOCUMENTS = {
    "collection": {"type": "FeatureCollection", "features": [feature(polygon(SQUARE, HOLE))]},
    "list, another class": [feature({"type": "MultiPolygon", "coordinates": [[SQUARE, HOLE]]}, "Tumor")],
    "one feature": feature(polygon(SQUARE, HOLE), "Stroma"),
    "bare geometry": polygon(SQUARE, HOLE),
    "with points": [feature({"type": "Point", "coordinates": [3, 3]}), feature(polygon(SQUARE, HOLE))],
    "hole as ignored": [feature(polygon(SQUARE), "Tumor"), feature(polygon(HOLE), "Ignore*")],
}


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_annotations_of_qupath_are_read(tmp_path: Path, kind: str) -> None:
    (tmp_path / "a.geojson").write_text(json.dumps(DOCUMENTS[kind]))
    contours = read_contours(tmp_path / "a.geojson")
    assert contours.edited
    assert rasterise(contours.tissue, (100, 100), 1.0).sum() == 100 * 100 - 20 * 20


@pytest.mark.parametrize(
    "text",
    ["", "{", "[3]", '{"type": "Polygon"}', '{"type": "Polygon", "coordinates": [[[0, 0], [1, 1]]]}',
     '{"type": "Polygon", "coordinates": [[[0, 0], [1, null], [2, 2]]]}', '{"features": []}'],
)  # fmt: skip
def test_a_broken_annotation_is_refused_with_its_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.geojson").write_text(text)
    with pytest.raises(InputError, match=r"a\.geojson: "):
        read_contours(tmp_path / "a.geojson")


def test_what_we_write_is_ours_until_it_is_edited(tmp_path: Path) -> None:
    path = tmp_path / "a.geojson"
    mask = ndimage.gaussian_filter(np.random.default_rng(0).normal(size=(60, 60)), 2) > 0
    write_contours(path, Tissue(tuple(trace(mask))), {"key": "k"})
    document = json.loads(path.read_text())
    assert document["features"][0]["properties"]["objectType"] == "annotation"
    assert document["features"][0]["properties"]["classification"]["name"] == "Tissue"
    ring = document["features"][0]["geometry"]["coordinates"][0]
    assert ring[0] == ring[-1]
    read = read_contours(path)
    assert not read.edited
    assert read.about["key"] == "k"
    np.testing.assert_array_equal(rasterise(read.tissue, (60, 60), 1.0), mask)

    path.write_text(json.dumps(document, indent=3))  # other spaces are no edit
    assert not read_contours(path).edited
    document["features"] = document["features"][:-1]
    path.write_text(json.dumps(document))
    assert read_contours(path).edited

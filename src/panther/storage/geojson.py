"""GeoJSON as QuPath writes and opens it: polygons in level-0 pixels, with a class and a colour."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from panther.store import atomic_write

Rings = tuple[np.ndarray, ...]  # (n, 2) corners x, y each, not closed; the outer one first, then holes


class GeoJson(NamedTuple):
    """Content of a GeoJSON file."""

    features: list[dict[str, Any]]
    polygons: list[tuple[str | None, Rings]]  # class and corners of each; points and lines are skipped
    panther: Mapping[str, Any]  # our member beside the features; may be empty


def annotation(
    rings: Sequence[np.ndarray], name: str, group: str, colour: Iterable[int], **more: Any
) -> dict[str, Any]:
    """Feature of one polygon, as an annotation of the class ``group``; ``more`` are further properties."""
    return {
        "type": "Feature",
        "geometry": {"type": "Polygon", "coordinates": [[*points, points[0]] for points in map(_corners, rings)]},
        "properties": {
            "objectType": "annotation",
            "name": name,
            "classification": {"name": group, "color": list(colour)},
            **more,
        },
    }


def write_geojson(path: Path, features: list[dict[str, Any]], panther: Mapping[str, Any] | None = None) -> None:
    """Write a FeatureCollection whole or not at all; ``panther`` is a member beside the features."""
    with atomic_write(path) as temporary:
        temporary.write_text(geojson_text(features, panther), encoding="utf-8")


def geojson_text(features: list[dict[str, Any]], panther: Mapping[str, Any] | None = None) -> str:
    """Text of a FeatureCollection."""
    document = {"type": "FeatureCollection", "features": features, **({} if panther is None else {"panther": panther})}
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def read_geojson(path: Path) -> GeoJson:
    """Read polygons of a collection or a list of features (QuPath writes both), one feature or one geometry.

    Other content raises one of the errors in `NOT_GEOJSON`.
    """
    document = json.loads(path.read_text(encoding="utf-8-sig"))
    features = _features(document)
    polygons = []
    for feature in features:
        group = (feature.get("properties") or {}).get("classification") or {}
        name = group.get("name") if isinstance(group, dict) else str(group)
        polygons += [(name, rings) for rings in _polygons(feature.get("geometry") or {})]
    member = document.get("panther") if isinstance(document, dict) else None
    return GeoJson(features, polygons, member if isinstance(member, dict) else {})


NOT_GEOJSON = (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError)


def _corners(ring: np.ndarray) -> list[list[float]]:
    whole = ring.round()
    return (whole.astype(int) if (whole == ring).all() else ring).tolist()


def _features(document: Any) -> list[dict[str, Any]]:
    if isinstance(document, list):
        return [feature for part in document for feature in _features(part)]
    kind = document["type"]
    if kind == "FeatureCollection":
        return list(document["features"])
    return [document] if kind == "Feature" else [{"type": "Feature", "geometry": document, "properties": {}}]


def _polygons(geometry: dict[str, Any]) -> Iterator[Rings]:
    kind = geometry.get("type")
    if kind == "GeometryCollection":
        for part in geometry["geometries"]:
            yield from _polygons(part)
    parts = {"Polygon": lambda g: [g["coordinates"]], "MultiPolygon": lambda g: g["coordinates"]}
    for rings in parts[kind](geometry) if kind in parts else ():
        outer, *holes = (_ring(points) for points in rings)
        yield (outer, *holes)


def _ring(points: Any) -> np.ndarray:
    ring = np.asarray([point[:2] for point in points], float)
    if ring.ndim != 2 or not np.isfinite(ring).all():
        raise ValueError("a ring holds other values than pairs of numbers")
    if len(ring) > 1 and (ring[0] == ring[-1]).all():
        ring = ring[:-1]
    if len(ring) < 3:
        raise ValueError("a ring has fewer than three corners")
    return ring

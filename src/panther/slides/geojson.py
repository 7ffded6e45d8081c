"""Tissue as GeoJSON that QuPath opens, and the way back: ours, edited, or an annotation of QuPath's."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from panther.content import hash_of
from panther.errors import InputError
from panther.slides.polygons import Polygon, Tissue
from panther.storage.atomic import atomic_write

IGNORED = "Ignore*"  # QuPath's class for what is not to be looked at
COLOUR = (0, 114, 178)


@dataclass(frozen=True)
class Contours:
    """What a GeoJSON file holds."""

    tissue: Tissue
    digest: str  # of the features
    about: Mapping[str, Any]  # what we wrote beside them; empty where the file is the user's
    edited: bool  # True: the user's, to be honoured and never overwritten


def write_contours(path: Path, tissue: Tissue, about: Mapping[str, Any]) -> None:
    """Write a FeatureCollection; a member `panther` says how it was made and what was written, so that an edit is noticed."""
    features = [_feature(region, i) for i, region in enumerate(tissue.regions)]
    document = {
        "type": "FeatureCollection",
        "features": features,
        "panther": {**about, "content": hash_of(features)},
    }
    with atomic_write(path) as temporary:
        temporary.write_text(json.dumps(document, separators=(",", ":")), encoding="utf-8")


def read_contours(path: Path) -> Contours:
    """Read polygons of any classification; points and lines are passed over."""
    try:
        document = json.loads(path.read_text(encoding="utf-8-sig"))
        features = _features(document)
        regions: list[Polygon] = []
        ignored: list[Polygon] = []
        for feature in features:
            (ignored if _class(feature) == IGNORED else regions).extend(_polygons(feature.get("geometry") or {}))
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError) as error:
        raise InputError(
            f"{path}: this is not a GeoJSON of polygons in level-0 pixels ({error}); export it from QuPath again, "
            "or remove it to have the tissue found anew."
        ) from error
    digest = hash_of(features)
    member = document.get("panther") if isinstance(document, dict) else None
    ours = isinstance(member, dict) and member.get("content") == digest
    return Contours(Tissue(tuple(regions), tuple(ignored)), digest, dict(member) if ours and member else {}, not ours)


def _feature(polygon: Polygon, index: int) -> dict[str, Any]:
    return {
        "type": "Feature",
        "geometry": {"type": "Polygon", "coordinates": [_closed(ring) for ring in polygon.rings]},
        "properties": {
            "objectType": "annotation",
            "name": f"tissue {index + 1}",
            "classification": {"name": "Tissue", "color": list(COLOUR)},
        },
    }


def _closed(ring: np.ndarray) -> list[list[int]]:
    points = ring.tolist()
    return [*points, points[0]]


def _features(document: Any) -> list[dict[str, Any]]:
    """Features of a collection, a list of features (QuPath writes both), one feature or a bare geometry."""
    if isinstance(document, list):
        return [feature for part in document for feature in _features(part)]
    kind = document["type"]
    if kind == "FeatureCollection":
        return list(document["features"])
    return [document] if kind == "Feature" else [{"type": "Feature", "geometry": document, "properties": {}}]


def _class(feature: dict[str, Any]) -> str | None:
    classification = (feature.get("properties") or {}).get("classification") or {}
    return classification.get("name") if isinstance(classification, dict) else str(classification)


def _polygons(geometry: dict[str, Any]) -> Iterator[Polygon]:
    kind = geometry.get("type")
    if kind == "GeometryCollection":
        for part in geometry["geometries"]:
            yield from _polygons(part)
    parts = {"Polygon": lambda g: [g["coordinates"]], "MultiPolygon": lambda g: g["coordinates"]}
    for rings in parts[kind](geometry) if kind in parts else ():
        outer, *holes = (_ring(points) for points in rings)
        yield Polygon(outer, tuple(holes))


def _ring(points: Any) -> np.ndarray:
    ring = np.asarray([point[:2] for point in points], float)
    if ring.ndim != 2 or not np.isfinite(ring).all():
        raise ValueError("a ring holds something else than pairs of numbers")
    if len(ring) > 1 and (ring[0] == ring[-1]).all():
        ring = ring[:-1]
    if len(ring) < 3:
        raise ValueError("a ring has fewer than three corners")
    return ring

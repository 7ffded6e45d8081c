"""Contours of tissue as GeoJSON that QuPath opens, and the way back: ours, edited, or an annotation of QuPath's."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from panther.errors import InputError
from panther.slides.polygons import Polygon, Tissue
from panther.storage.geojson import NOT_GEOJSON, annotation, read_geojson, write_geojson
from panther.store import hash_of

IGNORED = "Ignore*"  # QuPath's class for what is not to be looked at
COLOUR = (0, 114, 178)


@dataclass(frozen=True)
class Contours:
    """What a GeoJSON file holds."""

    tissue: Tissue
    digest: str  # of the features
    about: Mapping[str, Any]  # what we wrote beside them; empty where the file is the user's
    edited: bool  # True: the user's, to be honoured and never overwritten


def write_annotation(path: Path, tissue: Tissue) -> None:
    """Write tissue as the user's own annotation, which is kept and used."""
    write_geojson(path, _features(tissue))


def _features(tissue: Tissue) -> list[dict[str, Any]]:
    return [annotation(region.rings, f"tissue {i}", "Tissue", COLOUR) for i, region in enumerate(tissue.regions, 1)]


def write_contours(path: Path, tissue: Tissue, about: Mapping[str, Any]) -> Contours:
    """Write a FeatureCollection; a member `panther` says how it was made and what was written, so that an edit is noticed."""
    features = _features(tissue)
    member = {**about, "content": hash_of(features)}
    write_geojson(path, features, member)
    return Contours(tissue, member["content"], member, edited=False)


def read_contours(path: Path) -> Contours:
    """Read polygons of any class; those of the class `Ignore*` are cut out."""
    try:
        found = read_geojson(path)
    except NOT_GEOJSON as error:
        raise InputError(
            f"{path}: this is not a GeoJSON of polygons in level-0 pixels ({error}); export it from QuPath again, "
            "or remove it to have the tissue found anew."
        ) from error
    digest = hash_of(found.features)
    ours = found.panther.get("content") == digest
    regions: dict[bool, list[Polygon]] = {False: [], True: []}
    for group, (outer, *holes) in found.polygons:
        regions[group == IGNORED].append(Polygon(outer, tuple(holes)))
    tissue = Tissue(tuple(regions[False]), tuple(regions[True]))
    return Contours(tissue, digest, dict(found.panther) if ours else {}, not ours)

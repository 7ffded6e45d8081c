"""Annotations of slides: points, lines and areas with class, comment, author and time, in one GeoJSON per slide that QuPath opens.

The file lies beside the contours of the job (`annotations/SLIDE.geojson`), is written whole, and is read again before every change: an
annotation that was changed elsewhere meanwhile is not overwritten. `panther slides` adds areas of the class Tissue to the tissue and
cuts those of the class Ignore* out of it.
"""

import getpass
import json
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from flask import Blueprint, Response, jsonify

from panther.errors import InputError
from panther.explain.names import plain, plain_field
from panther.explain.palette import PALETTE, rgb_values
from panther.slides.polygons import ANNOTATIONS, IGNORE, TISSUE
from panther.storage.files import read_json, write_json
from panther.storage.geojson import NOT_GEOJSON, read_geojson, write_geojson
from panther.store import version_of
from panther.viewer.names import ConflictError, changing
from panther.viewer.queries import AnnotationChange, AnnotationImport
from panther.viewer.workbench import LruCache, Workbench

MOST = 5_000  # annotations of a slide
MOST_POINTS = 20_000  # corners of one
LARGEST_FILE = 32 << 20  # bytes
FARTHEST = 1e8  # level-0 pixels
MARKS = "marks.json"  # slides that were seen or flagged
STEPS = 200  # that can be undone, of a slide
DEPTHS = {"Point": 1, "LineString": 2, "Polygon": 3, "MultiPolygon": 4}  # of the lists of coordinates
FEWEST = {"LineString": 2, "Polygon": 4}  # points; a ring is closed
DESCRIPTION = "ANNOTATION_DESCRIPTION"  # where QuPath keeps a comment
COLOURS = {TISSUE: (0, 158, 115), IGNORE: (213, 94, 0), "": (255, 0, 0)}

Row = dict[str, Any]  # id, geometry, group, note, author, time


@dataclass
class _Steps:
    """Changes of one slide in this session: annotations before and after."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    done: deque[dict[str, tuple[Row | None, Row | None]]] = field(default_factory=lambda: deque(maxlen=STEPS))


class Annotations:
    """Annotations of the slides of one workbench. Threads may share it, and so may other programs."""

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench
        self._steps: LruCache[_Steps] = LruCache(1000)

    def path(self, name: str) -> Path:
        """File of a slide's annotations."""
        contours, place = self._bench.slide(name).contours, self._bench.contents.annotations
        return (place if contours is None else contours.parent.parent / ANNOTATIONS) / f"{name}.geojson"

    def state(self, name: str) -> dict[str, Any]:
        """Annotations of a slide, and whether a change can be reverted."""
        version = str(hash(version_of([self.path(name)])))  # of the outline that the edits of the tissue change
        rows = list(self.rows(name).values())
        return {"annotations": rows, "version": version, "can_undo": bool(self._of(name).done), "author": author()}

    def change(self, name: str, change: AnnotationChange) -> None:
        """Add, change or, without a geometry, delete an annotation; refused if it was changed since ``seen``."""

        def apply(rows: dict[str, Row]) -> dict[str, Row | None]:
            present = rows.get(change.id)
            if (None if present is None else present["time"]) != change.seen:
                raise ConflictError("the annotation was changed elsewhere; the present one is shown")
            if change.geometry is None:
                return {change.id: None}
            now = datetime.now(UTC).isoformat(timespec="milliseconds")
            geometry = checked_geometry(change.geometry)
            texts = {"group": plain(change.group), "author": plain(change.author) or author()}
            return {
                change.id: {
                    "id": change.id,
                    "geometry": geometry,
                    **texts,
                    "note": plain_field("note", change.note),
                    "time": now,
                }
            }

        self._write(name, apply)

    def add(self, name: str, features: list[dict[str, Any]]) -> int:
        """Add annotations of a GeoJSON, e.g. of QuPath; those with a known id replace it. Returns their number."""
        rows = [as_row(feature) for feature in features]
        self._write(name, lambda _: {row["id"]: row for row in rows})
        return len(rows)

    def undo(self, name: str) -> None:
        """Revert the last change of this session, unless it was changed again elsewhere."""
        done = self._of(name).done
        if not done:
            raise InputError("there is nothing to undo")
        step = done[-1]

        def apply(rows: dict[str, Row]) -> dict[str, Row | None]:
            if any(rows.get(key) != after for key, (_before, after) in step.items()):
                done.pop()
                raise ConflictError("the annotation was changed elsewhere; that change stays")
            return {key: before for key, (before, _after) in step.items()}

        self._write(name, apply, record=False)
        done.pop()

    def _of(self, name: str) -> _Steps:
        self._bench.slide(name)
        return self._steps.get(name, _Steps)

    def rows(self, name: str) -> dict[str, Row]:
        """Annotations of a slide by their ids."""
        path = self.path(name)
        if not path.exists():
            return {}
        self._bench.refuse_links([path])
        if path.stat().st_size > LARGEST_FILE:
            raise InputError(f"{path}: {path.stat().st_size >> 20} MiB, expected at most {LARGEST_FILE >> 20}")
        try:
            return {row["id"]: row for row in map(as_row, read_geojson(path).features)}
        except NOT_GEOJSON as error:
            raise InputError(f"{path}: no GeoJSON of annotations ({error}); nothing is written to it") from error

    def _write(
        self, name: str, change: Callable[[dict[str, Row]], Mapping[str, Row | None]], *, record: bool = True
    ) -> None:
        path, steps = self.path(name), self._of(name)
        with steps.lock, changing(path):
            rows = self.rows(name)
            changes = change(rows)
            step = {key: (rows.get(key), row) for key, row in changes.items() if rows.get(key) != row}
            after = {key: row for key, row in {**rows, **changes}.items() if row is not None}
            if len(after) > MOST:
                raise InputError(f"{name}: {len(after)} annotations, expected at most {MOST}")
            if not step:
                return
            write_geojson(path, [as_feature(row) for row in after.values()])
            if record:
                steps.done.append(step)


def author() -> str:
    """Name of the user of this machine."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""


def checked_geometry(geometry: Mapping[str, Any]) -> dict[str, Any]:
    """Geometry of GeoJSON with finite coordinates, in tenths of level-0 pixels."""
    kind = geometry.get("type")
    if kind not in DEPTHS:
        raise InputError(f"annotation: found a geometry {str(kind)[:40]!r}, expected {', '.join(DEPTHS)}")
    counter = [0]

    def checked(value: Any, depth: int) -> list[Any]:
        if not isinstance(value, (list, tuple)) or not value:
            raise InputError("annotation: found no coordinates, expected lists of numbers")
        if depth > 1:
            rows = [checked(row, depth - 1) for row in value]
            if depth == 2 and len(rows) < (FEWEST["Polygon"] if "Polygon" in kind else FEWEST.get(kind, 1)):
                raise InputError(f"annotation: found {len(rows)} points of a {kind}, expected more")
            return rows
        counter[0] += 1
        if counter[0] > MOST_POINTS:
            raise InputError(f"annotation: more than {MOST_POINTS} points, expected fewer")
        pair = value[:2]
        is_number = [isinstance(number, (int, float)) and not isinstance(number, bool) for number in pair]
        if len(pair) < 2 or not all(is_number) or not np.abs(np.array(pair, float)).max() <= FARTHEST:
            raise InputError("annotation: found other values than pairs of finite numbers")
        return [round(float(number), 1) for number in pair]

    return {"type": kind, "coordinates": checked(geometry.get("coordinates"), DEPTHS[kind])}


def as_row(feature: Mapping[str, Any]) -> Row:
    """An annotation as the page has it, of a feature that this viewer or QuPath wrote."""
    properties = feature.get("properties") or {}
    if not isinstance(properties, Mapping) or not isinstance(feature.get("geometry"), Mapping):
        raise InputError("annotation: found no geometry or no properties, expected features of GeoJSON")
    about, group = properties.get("metadata") or {}, properties.get("classification") or {}
    about = about if isinstance(about, Mapping) else {}
    group = group.get("name") if isinstance(group, Mapping) else group
    key = str(feature.get("id") or uuid4())[:64]
    texts = {"group": plain(str(group or ""))[:100], "author": plain(str(about.get("author", "")))[:100]}
    note = plain_field("note", str(about.get(DESCRIPTION) or properties.get("name") or ""))[:2000]
    geometry = checked_geometry(feature["geometry"])
    return {"id": key, "geometry": geometry, **texts, "note": note, "time": str(about.get("time", ""))[:40]}


def as_feature(row: Row) -> dict[str, Any]:
    """A feature of GeoJSON."""
    metadata = {DESCRIPTION: row["note"], "author": row["author"], "time": row["time"]}
    properties: dict[str, Any] = {"objectType": "annotation", "metadata": metadata}
    if row["note"]:
        properties["name"] = row["note"].partition("\n")[0][:80]
    if row["group"]:
        properties["classification"] = {"name": row["group"], "color": list(colour_of(row["group"]))}
    return {"type": "Feature", "id": row["id"], "geometry": row["geometry"], "properties": properties}


def colour_of(group: str) -> tuple[int, ...]:
    """Colour of a class of annotations."""
    return COLOURS.get(group) or tuple(rgb_values([PALETTE[sum(group.encode()) % 16]])[0].tolist())


def read_marks(bench: Workbench) -> dict[str, dict[str, bool]]:
    """Slides that were seen or flagged; a damaged file has none."""
    path = bench.contents.annotations / MARKS
    try:
        bench.refuse_links([path] if path.exists() else [])
        content = read_json(path)
        return {str(name): {key: bool(marks.get(key)) for key in ("seen", "flag")} for name, marks in content.items()}
    except (OSError, ValueError, AttributeError):
        return {}


def change_mark(bench: Workbench, name: str, changes: Mapping[str, bool]) -> dict[str, dict[str, bool]]:
    """Marks after a slide was seen or flagged, saved at once."""
    path = bench.contents.annotations / MARKS
    with changing(path):
        marks = read_marks(bench)
        marks[name] = {"seen": False, "flag": False, **marks.get(name, {}), **changes}
        write_json(path, marks)
    return marks


def annotation_routes(bench: Workbench) -> Blueprint:
    """Routes of the annotations of a slide."""
    routes = Blueprint("annotations", __name__)
    kept = Annotations(bench)

    def changed(name: str, change: Callable[[], Any]) -> Any:
        try:
            change()
        except ConflictError as error:
            return jsonify(error=str(error), **state(name)), 409
        return state(name)

    def state(name: str) -> dict[str, Any]:
        answer = kept.state(name)
        shades = {row["group"]: f"#{bytes(colour_of(row['group'])).hex()}" for row in answer["annotations"]}
        return {**answer, "colours": [{"group": group, "colour": colour} for group, colour in shades.items()]}

    @routes.get("/api/slides/<name>/annotations")
    def read(name: str) -> Any:
        return state(name)

    @routes.post("/api/slides/<name>/annotations")
    def change(name: str) -> Any:
        body = AnnotationChange.read()
        return changed(name, lambda: kept.change(name, body))

    @routes.post("/api/slides/<name>/annotations/import")
    def add(name: str) -> Any:
        body = AnnotationImport.read()
        return changed(name, lambda: kept.add(name, body.features))

    @routes.post("/api/slides/<name>/annotations/undo")
    def undo(name: str) -> Any:
        return changed(name, lambda: kept.undo(name))

    @routes.get("/annotations/<name>.geojson")
    def export(name: str) -> Response:
        document = {"type": "FeatureCollection", "features": [as_feature(row) for row in kept.rows(name).values()]}
        response = Response(json.dumps(document, ensure_ascii=False), mimetype="application/geo+json")
        response.headers.set("Content-Disposition", "attachment", filename=f"{name}.annotations.geojson")
        return response

    return routes

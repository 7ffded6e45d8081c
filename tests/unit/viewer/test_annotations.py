"""Annotations: saved whole, never over another writer's, undone on request, as QuPath reads and writes them."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from panther.slides.polygons import read_contours, with_edits
from panther.storage.geojson import read_geojson
from panther.viewer.annotations import MOST_POINTS, Annotations
from panther.viewer.contents import find_contents
from panther.viewer.queries import AnnotationChange
from panther.viewer.workbench import Workbench
from viewer.asking import entered

ORIGIN = {"Origin": "http://localhost"}
ADDRESS = "/api/slides/S0/annotations"
SQUARE = {"type": "Polygon", "coordinates": [[[10, 10], [60, 10], [60, 40], [10, 10]]]}


@pytest.fixture
def page(cohort_folder):
    return entered(cohort_folder)


def post(page, body, address=ADDRESS):
    return page.post(address, json=body, headers=ORIGIN)


def change(**fields):
    return {"id": "a-1", "seen": None, "geometry": SQUARE, "group": "Tumour", "note": "", "author": "Anna"} | fields


def test_an_annotation_is_saved_changed_deleted_and_restored(page, cohort_folder):
    (row,) = post(page, change(note="solid\nsee /data/x")).get_json()["annotations"]
    assert (row["group"], row["note"], row["author"]) == ("Tumour", "solid\nsee /data/x", "Anna")
    file = cohort_folder / "annotations" / "S0.geojson"
    assert [group for group, _ in read_geojson(file).polygons] == ["Tumour"]
    (row,) = post(page, change(seen=row["time"], group="Stroma")).get_json()["annotations"]
    assert post(page, {"id": "a-1", "seen": row["time"]}).get_json()["annotations"] == []
    for group in ("Stroma", "Tumour"):
        (restored,) = post(page, {}, f"{ADDRESS}/undo").get_json()["annotations"]
        assert restored["group"] == group
    assert post(page, {}, f"{ADDRESS}/undo").get_json()["annotations"] == []
    assert post(page, {}, f"{ADDRESS}/undo").status_code == 422
    assert [file.name for file in file.parent.iterdir()] == ["S0.geojson"]


def test_a_file_of_qupath_is_imported_and_comes_back_the_same(page):
    """As QuPath 0.5 writes an annotation with a description."""
    feature = {
        "type": "Feature",
        "id": "7f0c2f0e-3f2a-4c36-9b3e-0b9e7f3a2b11",
        "geometry": SQUARE,
        "properties": {
            "objectType": "annotation",
            "classification": {"name": "Necrosis", "color": [50, 50, 50]},
            "isLocked": False,
            "metadata": {"ANNOTATION_DESCRIPTION": "ghost cells"},
        },
    }
    assert post(page, {"features": [feature]}, f"{ADDRESS}/import").status_code == 200
    exported = json.loads(page.get("/annotations/S0.geojson").data)["features"]
    assert [(one["id"], one["geometry"], one["properties"]["classification"]["name"]) for one in exported] == [
        (feature["id"], feature["geometry"], "Necrosis")
    ]
    assert exported[0]["properties"]["metadata"]["ANNOTATION_DESCRIPTION"] == "ghost cells"
    post(page, {"features": exported}, f"{ADDRESS}/import")
    assert json.loads(page.get("/annotations/S0.geojson").data)["features"] == exported


def test_two_writers_keep_each_others_annotations_and_a_conflict_overwrites_nothing(page, cohort_folder):
    other = entered(cohort_folder)
    (mine,) = post(page, change()).get_json()["annotations"]
    post(other, change(seen=mine["time"], note="theirs"))
    refused = post(page, change(seen=mine["time"], note="mine"))
    assert refused.status_code == 409
    assert [row["note"] for row in refused.get_json()["annotations"]] == ["theirs"]
    assert post(page, {}, f"{ADDRESS}/undo").status_code == 409  # it was changed elsewhere
    bench = Workbench(find_contents(cohort_folder))
    writers = [Annotations(bench), Annotations(bench)]
    with ThreadPoolExecutor(8) as pool:
        tasks = [pool.submit(writers[n % 2].change, "S0", AnnotationChange(**change(id=f"b-{n}"))) for n in range(24)]
        [task.result() for task in tasks]
    assert len(page.get(ADDRESS).get_json()["annotations"]) == 25


def nested(depth):
    return [nested(depth - 1)] if depth else [0, 0]


@pytest.mark.parametrize(
    "geometry",
    [
        {"type": "Polygon", "coordinates": [[[0, 0], [1, 1]]]},
        {"type": "Polygon", "coordinates": []},
        {"type": "Point", "coordinates": ["<script>", 0]},
        {"type": "Point", "coordinates": [1e300, 0]},
        {"type": "Point", "coordinates": [True, 0]},
        {"type": "Point"},
        {"type": "GeometryCollection", "geometries": []},
        {"type": "LineString", "coordinates": [[0, 0]] * (MOST_POINTS + 1)},
        {"type": "Point", "coordinates": nested(60)},
    ],
)
def test_geometries_that_are_none_and_bombs_are_refused_and_nothing_is_written(page, cohort_folder, geometry):
    refused = post(page, change(geometry=geometry))
    assert refused.status_code in (400, 422)
    assert "\n" not in refused.get_json()["error"]
    assert not (cohort_folder / "annotations" / "S0.geojson").exists()


@pytest.mark.parametrize(
    "body",
    [
        change(id="../../etc/passwd"),
        change(note="x" * 3000),
        change(more=1),
        {"features": [{"id": str(n)} for n in range(6000)]},
    ],
)
def test_other_bodies_are_refused(page, body):
    assert post(page, body, f"{ADDRESS}/import" if "features" in body else ADDRESS).status_code == 422
    assert post(page, change(), "/api/slides/..%2Fx/annotations").status_code == 404
    assert page.post(ADDRESS, json=change()).status_code == 403  # no origin


def test_a_damaged_file_and_links_are_left_alone(page, cohort_folder, outside):
    folder = cohort_folder / "annotations"
    folder.mkdir()
    (folder / "S0.geojson").write_text('{"type": "Feature')
    refused = post(page, change())
    assert refused.status_code == 422
    assert str(cohort_folder) not in refused.get_json()["error"]
    assert (folder / "S0.geojson").read_text() == '{"type": "Feature'
    (folder / "S1.geojson").symlink_to(outside / "secret.txt")
    for answer in (page.get("/api/slides/S1/annotations"), post(page, change(), "/api/slides/S1/annotations")):
        assert answer.status_code == 422


def test_areas_of_tissue_and_of_ignore_change_the_contours_of_slides(tmp_path):
    from panther.slides.polygons import Tissue, write_contours

    contours = write_contours(tmp_path / "S.geojson", Tissue(()), {"key": "k"})
    edits = tmp_path / "edits.geojson"
    assert with_edits(contours, edits) is contours
    features = [
        {"type": "Feature", "geometry": SQUARE, "properties": {"classification": {"name": group}}}
        for group in ("Tissue", "Ignore*", "Tumour")
    ]
    edits.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    edited = with_edits(read_contours(tmp_path / "S.geojson"), edits)
    assert (len(edited.tissue.regions), len(edited.tissue.ignored)) == (1, 1)
    assert edited.digest != contours.digest  # patches are placed anew
    assert edited.about == contours.about  # the tissue is not searched again

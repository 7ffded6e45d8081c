"""Routes of the cohort page: positions and colours, against independent computations."""

import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import anndata
import numpy as np
import pandas as pd
import pytest

from panther.storage.clinical import read_clinical
from panther.viewer.cohort.units import columns_of, unit_value
from panther.viewer.contents import find_contents
from viewer.asking import entered

HERE = {"Origin": "http://localhost"}


def ask(client, address, **options):
    """Status and answer, when the computation has ended."""
    for _ in range(600):
        response = client.get(address, query_string=options)
        content = response.get_json()
        if not content.get("progress"):
            return response.status_code, content
        assert content["progress"]["done"] <= content["progress"]["total"]
        time.sleep(0.05)
    raise AssertionError("the computation does not end")


def places(content):
    return {
        k: (x, y) for t in content["figure"]["data"] for k, x, y in zip(t["customdata"], t["x"], t["y"], strict=True)
    }


def test_slides_lie_where_a_singular_value_decomposition_puts_them(client, cohort_folder):
    status, found = ask(client, "/api/cohort/points", plane="pca:embeddings", colour="column:subtype")
    assert status == 200
    table = anndata.read_h5ad(cohort_folder / "slides.h5ad")
    x = np.asarray(table.X, float)
    u, s, _ = np.linalg.svd(x - x.mean(0), full_matrices=False)
    expected = np.abs((u * s)[:, :2])
    own = places(found)
    np.testing.assert_allclose([np.abs(own[name]) for name in table.obs_names], expected, rtol=1e-3, atol=1e-3)
    assert {trace["name"] for trace in found["figure"]["data"]} == {"a", "b"}


def test_patients_lie_at_the_mean_of_their_slides(client, cohort_folder):
    _, slides = ask(client, "/api/cohort/points", plane="pca:pi", colour="pi:0")
    _, patients = ask(client, "/api/cohort/points", plane="pca:pi", colour="pi:0", level="patients")
    assert sorted(places(patients)) == ["P0", "P1", "P4", "P5"]
    table = anndata.read_h5ad(cohort_folder / "slides.h5ad")
    pi, n = dict(zip(table.obs_names, table.obsm["pi"][:, 0], strict=True)), table.obs["n_patches"]
    assert slides["values"]["S1"] == pytest.approx(pi["S1"], abs=1e-6)
    assert patients["values"]["P0"] == pytest.approx((n["S0"] * pi["S0"] + n["S1"] * pi["S1"]) / (n["S0"] + n["S1"]), abs=1e-6)  # fmt: skip


def test_without_embeddings_shares_are_computed_from_features(cohort_folder):
    contents = find_contents(cohort_folder)
    status, found = ask(entered(replace(contents, embeddings=None)), "/api/cohort/points", plane="pca:pi", colour="pi:1")  # fmt: skip
    assert status == 200
    _, filed = ask(entered(contents), "/api/cohort/points", plane="pca:pi", colour="pi:1")
    assert found["values"] == pytest.approx(filed["values"], abs=1e-5)


def test_a_slide_whose_features_are_damaged_is_left_out_and_named(cohort_folder):
    contents = replace(find_contents(cohort_folder), embeddings=None)
    (cohort_folder / "features" / "S2.h5").write_bytes(b"broken")
    status, found = ask(entered(contents), "/api/cohort/points", plane="pca:pi", colour="column:subtype")
    assert status == 200
    assert "S2" not in places(found)
    assert any("S2" in note for note in found["notes"])


def test_levels_planes_and_colours_are_listed(client):
    found = client.get("/api/cohort").get_json()
    assert found["levels"] == ["slides", "patients"]
    assert [plane["id"] for plane in found["planes"]] == ["pca:embeddings", "pca:pi"]
    assert found["colour"] == "column:subtype"
    titles = {colour["id"]: colour["title"] for colour in found["colours"]}
    assert titles["pi:0"] == "π of C0 stroma"
    assert "column:slide_id" not in titles  # identifiers
    assert found["rows"][3] == {
        "column:subtype": "b", "column:os_survival_days": 900.0, "column:os_censorship": "1",
        "name": "S3", "patient": "P1", "slides": ["S3"],
    }  # fmt: skip


def test_umap_is_offered_where_it_is_installed(cohort_folder, monkeypatch):
    from panther.explain import projection

    def installed(random_state, **_):
        assert random_state == 0
        return SimpleNamespace(fit_transform=lambda x: x[:, :2])

    monkeypatch.setitem(sys.modules, "umap", SimpleNamespace(UMAP=installed))
    monkeypatch.setattr("panther.viewer.cohort.positions.umap_installed", lambda: True)
    monkeypatch.setattr("panther.viewer.cohort.positions.FEWEST_UMAP", 2)
    assert projection.umap(np.ones((3, 4)))[1] == ("UMAP 1", "UMAP 2")
    client = entered(cohort_folder)
    assert "umap:pi" in [plane["id"] for plane in client.get("/api/cohort").get_json()["planes"]]
    status, found = ask(client, "/api/cohort/points", plane="umap:pi", colour="pi:0")
    assert status == 200
    x, _ = places(found)["S1"]
    assert x == pytest.approx(found["values"]["S1"], abs=1e-5)


def a_run(folder, **predictions):
    """A study of patients, as the report reads it."""
    from panther.report.data import Run

    table = pd.DataFrame({"row": "PANTHER + probe", "part": "test", **predictions})
    classes = ["a", "b"] if "probability_a" in predictions else None
    task = SimpleNamespace(label="subtype" if classes else None)
    empty = pd.DataFrame()
    study = SimpleNamespace(task=task, kind="classification" if classes else "survival")
    return Run(folder, {"classes": classes}, study, empty, empty, empty, empty, table, empty, empty)


def test_predictions_of_a_study_colour_slides_of_its_patients(cohort_folder, monkeypatch):
    run = a_run(cohort_folder, sample=["P0", "P0", "P1"], probability_a=[0.2, 0.4, 0.9], probability_b=[0.8, 0.6, 0.1])
    monkeypatch.setattr("panther.viewer.cohort.colours.load_run", lambda path: run)
    client = entered(replace(find_contents(cohort_folder), studies={"first: try": cohort_folder}))
    colours = {c["title"]: c["id"] for c in client.get("/api/cohort").get_json()["colours"] if "study" in c["group"]}
    assert list(colours) == ["PANTHER + probe: predicted class", "PANTHER + probe: probability of b"]
    _, found = ask(client, "/api/cohort/points", plane="pca:pi", colour=colours["PANTHER + probe: probability of b"])
    assert found["values"] == pytest.approx({"S0": 0.7, "S1": 0.7, "S2": 0.1, "S3": 0.1})
    _, found = ask(client, "/api/cohort/points", plane="pca:pi", colour=colours["PANTHER + probe: predicted class"])
    assert found["values"] == {"S0": "b", "S1": "b", "S2": "a", "S3": "a"}
    assert {trace["name"] for trace in found["figure"]["data"]} == {"a", "b", "not known"}


def test_a_study_that_cannot_be_read_is_a_note(cohort_folder):
    (cohort_folder / "broken").mkdir()
    client = entered(replace(find_contents(cohort_folder), studies={"broken": cohort_folder / "broken"}))
    found = client.get("/api/cohort").get_json()
    assert any("broken" in note for note in found["notes"])
    assert found["colours"]


def test_unknown_planes_colours_levels_and_sets_are_refused(client):
    colours = ("pi:99", "pi:-1", "column:../../etc/passwd", "study:none:risk", "model:none:risk", "<script>")
    unknown = [{"plane": "umap:nothing"}, {"set": "../prototypes"}, *({"colour": colour} for colour in colours)]
    for options in unknown:
        status, content = ask(client, "/api/cohort/points", **{"plane": "pca:pi"} | options)
        assert status == 404, options
        assert content["error"]
    assert ask(client, "/api/cohort/points", plane="pca:pi", level="cells")[0] == 422


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_cohort_of_a_few_slides_is_drawn(cohort_folder, count):
    contents = find_contents(cohort_folder)
    client = entered(replace(contents, slides=dict(list(contents.slides.items())[:count])))
    for plane in ("pca:embeddings", "pca:pi"):
        status, found = ask(client, "/api/cohort/points", plane=plane, colour="column:subtype")
        assert status == 200
        assert len(places(found)) == count


def test_without_table_embeddings_or_prototypes_the_others_are_used(cohort_folder):
    contents = find_contents(cohort_folder)
    client = entered(replace(contents, table=None, embeddings=None))
    page = client.get("/api/cohort").get_json()
    assert (page["colour"], page["columns"]) == ("pi:0", [])
    assert ask(client, "/api/cohort/points", plane="pca:pi", colour="pi:0")[0] == 200
    client = entered(replace(contents, prototypes={}))
    assert ask(client, "/api/cohort/points", plane="pca:embeddings", colour="pi:1")[0] == 200
    page = entered(replace(contents, embeddings=None, prototypes={})).get("/api/cohort").get_json()
    assert (page["planes"], len(page["rows"])) == ([], 6)
    assert "panther prototypes" in page["notes"][0]


def test_embeddings_of_other_slides_are_not_used(cohort_folder):
    path = cohort_folder / "slides.h5ad"
    table = anndata.read_h5ad(path)
    table.obs_names = [f"other{i}" for i in range(len(table))]
    table.write_h5ad(path)
    found = entered(cohort_folder).get("/api/cohort").get_json()
    assert [plane["id"] for plane in found["planes"]] == ["pca:pi"]
    assert "other0" in found["notes"][0]


def test_embeddings_with_nan_are_left_out_and_a_damaged_file_is_noted(cohort_folder):
    path = cohort_folder / "slides.h5ad"
    table = anndata.read_h5ad(path)
    table.X[2, 5] = np.nan
    table.write_h5ad(path)
    _, found = ask(entered(cohort_folder), "/api/cohort/points", plane="pca:embeddings", colour="pi:0")
    assert "S2" not in places(found)
    assert any("S2" in note for note in found["notes"])
    path.write_bytes(b"no embeddings")
    found = entered(cohort_folder).get("/api/cohort").get_json()
    assert "slides.h5ad" in found["notes"][0]


def test_columns_are_numbers_names_or_constant(tmp_path):
    table = pd.DataFrame(
        {
            "slide_id": [f"S{i}" for i in range(6)],
            "age": ["61", "", "nan", "48.5", "70", "52"],
            "grade": ["1", "2", "2", "1", "2", "1"],
            "same": ["x"] * 6,
            "empty": [""] * 6,
            "name": ["<script>alert(1)</script>", "b", "c", "d", "e", "f"],
        }
    )
    found = {one.name: one for one in columns_of(read_clinical(table), [f"S{i}" for i in range(6)])}
    assert "slide_id" not in found
    assert found["age"].kind == "number"
    assert found["age"].values == {"S0": 61, "S3": 48.5, "S4": 70, "S5": 52}
    assert found["grade"].kind == "category"
    assert found["empty"].values == {}
    assert unit_value(found["age"].values, ["S0", "S1", "S4"]) == 65.5
    assert unit_value(found["name"].values, ["S1", "S2"]) == "several"


def test_the_list_of_slides_has_labels_shares_and_marks_that_are_saved(client, cohort_folder):
    found = client.get("/api/slides").get_json()
    table = anndata.read_h5ad(cohort_folder / "slides.h5ad")
    assert found["label"] == "subtype"
    assert [row["label"] for row in found["slides"]] == ["a", "a", "b", "b", "a", "b"]
    np.testing.assert_allclose([row["pi"] for row in found["slides"]], table.obsm["pi"], atol=1e-6)
    assert found["marks"] == {}
    client.post("/api/slides/S1/mark", json={"flag": True}, headers=HERE)
    marks = client.post("/api/slides/S1/mark", json={"seen": True}, headers=HERE).get_json()["marks"]
    assert marks == {"S1": {"seen": True, "flag": True}}
    assert client.get("/api/slides").get_json()["marks"] == marks
    assert client.post("/api/slides/S9/mark", json={"flag": True}, headers=HERE).status_code == 404
    assert client.post("/api/slides/S1/mark", json={"flag": "yes"}, headers=HERE).status_code == 422


def test_predictions_of_the_list_are_those_of_the_best_method(class_study):
    client = entered(class_study.parent)
    rows = client.get("/api/slides").get_json()["slides"]
    assert any("predicted" in row for row in rows)
    assert all(0.3 < row["certainty"] <= 1 for row in rows if "predicted" in row)

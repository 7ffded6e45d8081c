"""The start page: there before its folder is read, then what was done, what failed and what is next."""

import threading

import pytest

from panther.errors import InputError
from panther.viewer.contents import find_contents
from panther.viewer.serve import Viewer
from panther.viewer.workbench import Workbench
from viewer.asking import Browser, entered


def test_the_page_is_there_before_the_folder_is_read(cohort_folder):
    go_on = threading.Event()

    def read(_stack):
        go_on.wait(30)
        return Workbench(find_contents(cohort_folder))

    with Viewer(read) as viewer:
        browser, root = Browser(), viewer.address.split("?")[0]
        assert browser.get(f"{root}api/contents").status == 403  # no token yet
        assert browser.get(viewer.address).status == 200
        assert browser.get(f"{root}static/app.js").status == 200
        waiting = browser.get(f"{root}api/contents")
        assert (waiting.status, waiting.json["loading"]) == (503, True)
        go_on.set()
        viewer.wait()
        assert browser.get(f"{root}api/contents").json["title"] == "cohort"


def test_a_folder_that_cannot_be_opened_is_told_without_its_path(cohort_folder):
    def read(_stack):
        raise InputError(f"{cohort_folder}: nothing to show")

    viewer = Viewer(read)
    browser, root = Browser(), viewer.address.split("?")[0]
    viewer._loading.join()
    browser.get(viewer.address)
    answer = browser.get(f"{root}api/contents")
    assert answer.json["loading"] is False
    assert str(cohort_folder) not in answer.content.decode()
    with pytest.raises(InputError, match="nothing to show"):
        viewer.wait()


def test_it_lists_what_was_done_and_what_failed_and_the_next_step(cohort_folder):
    job = cohort_folder / "job"
    (job / "contours_geojson").mkdir(parents=True)
    (job / "contours_geojson" / "S1.geojson").write_text('{"type": "FeatureCollection", "features": []}')
    (job / "summary.csv").write_text(
        f"slide,path,status,reason\nS1,{cohort_folder}/slides/S1.tif,failed,{cohort_folder}/slides/S1.tif: truncated\n"
    )
    (cohort_folder / "features" / "S2.h5").unlink()
    answer = entered(cohort_folder).get("/api/start")
    found = answer.get_json()
    assert found["failures"] == [
        {"slide": "S1", "reason": "S1.tif: truncated"},
        {"slide": "S2", "reason": "no features"},
    ]
    assert str(cohort_folder) not in answer.get_data(as_text=True)
    assert found["unnamed"] == [2]
    assert found["next"]["page"] == "prototypes"
    assert {row["step"]: row["done"] for row in found["done"]}["Embeddings"]
    (cohort_folder / "prototypes.safetensors").unlink()
    assert "panther prototypes" in entered(cohort_folder).get("/api/start").get_json()["next"]["command"]


def test_it_names_the_best_method_of_a_study(class_study):
    (study,) = entered(class_study.parent).get("/api/start").get_json()["studies"]
    assert 0 <= study["low"] <= study["mean"] <= study["high"] <= 1
    assert "PANTHER" in study["best"] or "DeepSets" in study["best"]

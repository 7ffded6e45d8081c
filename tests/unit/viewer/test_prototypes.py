"""Routes of the prototype page: exemplars, groups, survival, neighbours, and reasons for what is missing."""

import json
import shutil
import time
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from flask.testing import FlaskClient

import panther
from panther.viewer.contents import find_contents
from panther.viewer.gallery import Gallery, gallery_of
from panther.viewer.workbench import Workbench
from viewer.asking import entered


def asked(client: FlaskClient, address: str) -> Any:
    """Answer once all slides are described."""
    while True:
        found = client.get(address)
        assert found.status_code == 200, found.get_json()
        if not found.get_json()["running"]:
            return found.get_json()
        time.sleep(0.05)


def test_every_prototype_has_its_share_and_its_most_typical_patches(client: FlaskClient, bench: Workbench):
    found = asked(client, "/api/prototypes")
    assert (found["done"], found["total"], found["running"], found["failed"]) == (6, 6, False, 0)
    assert sum(one["share"] for one in found["prototypes"]) == pytest.approx(1)
    for one in found["prototypes"]:
        assert 6 <= len(one["typical"]) <= 9
        for patch in one["typical"]:
            labels = bench.patches(patch["slide"]).assignment.argmax(1)
            assert labels[patch["patch"]] == one["prototype"]
    assert found["columns"][0] in ("subtype", "os_censorship", "case_id")


def test_exemplars_are_typical_borderline_and_atypical_patches_of_many_slides(client: FlaskClient, bench: Workbench):
    found = asked(client, "/api/prototypes/1?column=subtype")["exemplars"]
    assert set(found) == {"nearest", "borderline", "farthest"}
    assert len({one["slide"] for one in found["nearest"]}) == 6
    nearest, farthest = ([one["distance"] for one in found[kind]] for kind in ("nearest", "farthest"))
    assert max(nearest[:6]) <= min(farthest[:6])
    # the margin to the next prototype, computed here on its own
    rows = {}
    for name in ("S0", "S3"):
        with h5py.File(bench.contents.slides[name].features.files[0]) as file:
            x = file["features"][()].astype(float)
        c = bench.prototypes().centroids.double().numpy()
        d = np.sqrt(((x[:, None] - c[None]) ** 2).sum(-1))
        mine = d.argmin(1) == 1
        margin = np.sort(d, 1)[:, 1] - np.sort(d, 1)[:, 0]
        rows[name] = np.where(mine, margin, np.inf)
    for one in found["borderline"]:
        if one["slide"] in rows and one in found["borderline"][:6]:  # the first of each slide
            assert rows[one["slide"]][one["patch"]] == pytest.approx(rows[one["slide"]].min(), abs=1e-4)


def test_a_prototype_has_shares_by_group_survival_and_relations(client: FlaskClient):
    found = asked(client, "/api/prototypes/0?column=subtype")
    assert found["groups"]["column"] == "subtype"
    assert {one["value"]: one["n"] for one in found["groups"]["groups"]} == {"a": 2, "b": 2}  # patients, not slides
    assert found["groups"]["figure"]["data"]
    assert any("no test" in note for note in found["groups"]["notes"])
    assert found["survival"]["endpoint"] == "os"
    assert found["survival"]["figure"]["data"]
    assert any("os_survival_days and os_" in note for note in found["survival"]["notes"])
    assert [one["prototype"] for one in found["beside"]] == [0, 1, 2]
    assert found["beside"][0]["log2"] > 0  # tissue lies beside its own
    assert "panther attribute" in found["predicts"]["why"]
    numbers = asked(client, "/api/prototypes/0?column=os_survival_days")["groups"]
    assert numbers["figure"] is not None
    assert "'nothing'" in asked(client, "/api/prototypes/0?column=nothing")["groups"]["why"]
    assert client.get("/api/prototypes/3").status_code == 404
    assert client.get("/api/prototypes/0?set=../x").status_code == 404


@pytest.mark.parametrize("lost", ["cohort.csv", "slides", "slides.h5ad", "names.yaml", "coords"])
def test_what_is_missing_has_a_reason_and_the_rest_is_shown(cohort_folder: Path, lost: str):
    if lost == "coords":
        for file in (cohort_folder / "features").iterdir():
            with h5py.File(file, "a") as opened:
                del opened["coords"]
    else:
        gone = cohort_folder / lost
        shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
    client = entered(cohort_folder)
    found = asked(client, "/api/prototypes/0")
    assert found["exemplars"]["nearest"]
    if lost == "cohort.csv":
        assert found["groups"]["figure"] is None
        assert "--table" in found["groups"]["why"]
        assert "--table" in found["survival"]["why"]
    if lost == "coords":
        assert found["beside"][0]["log2"] is None


def test_without_survival_or_prototypes_the_error_names_the_remedy(cohort_folder: Path):
    (cohort_folder / "cohort.csv").write_text("slide_id,subtype\nS0,a\nS1,b\n")
    client = entered(cohort_folder)
    assert "no survival" in asked(client, "/api/prototypes/0")["survival"]["why"]
    (cohort_folder / "prototypes.safetensors").unlink()
    client = entered(cohort_folder)
    for address in ("/api/prototypes", "/api/prototypes/0", "/api/names"):
        answer = client.get(address)
        assert answer.status_code == 404
        assert "panther prototypes" in answer.get_json()["error"]


def test_a_slide_that_cannot_be_read_is_counted_and_named(cohort_folder: Path):
    bench = Workbench(find_contents(cohort_folder))
    (cohort_folder / "features" / "S2.h5").write_bytes(b"half")
    found = asked(entered(bench), "/api/prototypes")
    assert (found["done"], found["failed"], list(found["failures"])) == (6, 1, ["S2"])


def test_an_atlas_of_the_same_prototypes_is_used_until_its_slides_are_described_on_request(cohort_folder: Path):
    files = cohort_folder / "features", cohort_folder / "prototypes.safetensors"
    panther.make_atlas(*files, output=cohort_folder / "atlas")
    bench = Workbench(find_contents(cohort_folder))
    client = entered(bench)
    before, shares = asked(client, "/api/prototypes/1"), gallery_of(bench, None).shares()[0]
    assert (before["can_look"], before["done"]) == (True, 0)
    assert set(before["exemplars"]) == {"nearest", "random"}
    answer = client.post("/api/prototypes/look", json={}, headers={"Origin": "http://localhost"})
    assert answer.status_code == 200
    after = asked(client, "/api/prototypes/1")
    assert not after["can_look"]
    assert set(after["exemplars"]) == {"nearest", "borderline", "farthest"}
    assert np.allclose(gallery_of(bench, None).findings().proportions.pi, shares.pi, atol=1e-6)
    file = cohort_folder / "atlas" / "atlas.json"
    for damaged in ("[]", "{", json.dumps({**json.loads(file.read_text()), "prototypes_hash": "another"})):
        file.write_text(damaged)
        assert Gallery(bench, None).findings().content == {}


def test_contributions_of_an_attribution_are_shown_with_their_ranks(cohort_folder: Path, bench: Workbench):
    (cohort_folder / "attribution").mkdir()
    rows = [{"output": "a", "prototype": c, "statistic": s, "mean": -c, "mean_absolute": c} for c in range(3) for s in ("pi", "mu")]  # fmt: skip
    content = {"prototypes_hash": bench.prototypes().content_hash(), "outputs": ["a"], "cohort": rows}
    (cohort_folder / "attribution" / "attribution.json").write_text(json.dumps(content))
    client = entered(cohort_folder)
    found = asked(client, "/api/prototypes/1")["predicts"]["rows"]
    assert found == [{"from": "attribution", "output": "a", "mean": -2.0, "size": 2.0, "rank": 2, "of": 3}]


def test_pictures_of_exemplars_are_those_of_their_patches(client: FlaskClient):
    patch = next(
        one for one in asked(client, "/api/prototypes/1")["exemplars"]["nearest"] if one["slide"] in ("S0", "S1", "S2")
    )
    place = "&".join(f"{name}={value}" for name, value in patch["place"].items())
    square = client.get(f"/tiles/{patch['slide']}/square.jpg?{place}&size=60")
    assert square.data == client.get(f"/tiles/{patch['slide']}/patch/{patch['patch']}.jpg?size=60").data
    invalid = ("x=0&y=0&side=0", "x=nan&y=0&side=5", "x=1e300&y=0&side=5", "x=0&y=0&side=1e9")
    for wrong in (*invalid, "x=0&y=0", "x=10&side=3"):
        assert client.get(f"/tiles/S0/square.jpg?{wrong}").status_code == 422
    assert client.get(f"/tiles/S4/square.jpg?{place}").status_code == 404

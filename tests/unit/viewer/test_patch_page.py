"""Routes of one patch: its prototype, how typical it is, and the search for similar patches."""

import json
import socket
import threading
import time
from collections import Counter
from urllib.parse import urlsplit

import h5py
import numpy as np
import pytest

import panther
from panther.viewer.contents import find_contents
from panther.viewer.pages import patch as patch_page
from panther.viewer.pages.patch import search
from panther.viewer.serve import Viewer
from panther.viewer.workbench import Workbench
from viewer.asking import entered


def everything(folder):
    """All similarities of the cohort in float64, by brute force: [(similarity, slide, patch)]."""
    bags = {path.stem: panther.open_bag(path).features[:].double().numpy() for path in (folder / "features").iterdir()}
    q = bags["S0"][7] / np.linalg.norm(bags["S0"][7])
    return {
        (slide, n): float(x @ q / np.linalg.norm(x))
        for slide, bag in bags.items()
        for n, x in enumerate(bag)
        if (slide, n) != ("S0", 7)
    }


def rewrite(path, change):
    with h5py.File(path, "r+") as file:
        values = change(file["features"][()])
        attributes = dict(file["features"].attrs)
        del file["features"]
        file.create_dataset("features", data=values).attrs.update(attributes)


def answer_of(client, query, slide="S0"):
    """The last line of a search around patch 7."""
    return json.loads(client.get(f"/api/slides/{slide}/patches/7/similar?{query}").data.splitlines()[-1])


def test_a_patch_has_its_posterior_and_its_distances(client, bench, cohort_folder):
    found = client.get("/api/slides/S0/patches/7").get_json()
    patches, prototypes = bench.patches("S0"), bench.prototypes()
    assert found["posterior"] == pytest.approx(patches.assignment[7].tolist(), abs=1e-6)
    assert (found["x"], found["y"], found["side"]) == (*patches.corners[7].tolist(), patches.side)
    x = panther.open_bag(cohort_folder / "features" / "S0.h5").features[:].double()
    apart = (x[:, None] - prototypes.centroids.double()).norm(dim=-1).numpy()  # (N, C)
    labels = patches.assignment.argmax(1)
    own = apart[np.arange(len(labels)), labels]
    assert found["distance"] == pytest.approx(own[7], rel=1e-4, abs=1e-4)
    assert found["nearest"]["prototype"] == apart[7].argmin()
    others = (labels == labels[7]) & (np.arange(len(labels)) != 7)
    assert found["typical"] == pytest.approx((own[others] > own[7]).mean(), abs=0.02)


def test_a_patch_that_is_not_there(client):
    assert client.get("/api/slides/S0/patches/9999999").status_code == 404
    assert client.get("/api/slides/S0/patches/-1").status_code == 404
    assert client.get("/api/slides/..%2Fsecret/patches/0").status_code == 404
    answer = client.get("/api/slides/S0/patches/9999999/similar")
    assert answer.status_code == 422
    assert "there is no patch 9999999" in answer.get_json()["error"]


def test_without_prototypes_a_patch_still_has_its_place(cohort_folder):
    (cohort_folder / "prototypes.safetensors").unlink()
    found = entered(cohort_folder).get("/api/slides/S0/patches/7").get_json()
    assert found["posterior"] == []
    assert found["prototype"] is None
    assert found["x"] is not None


def test_similar_patches_are_those_of_all_similarities(client, cohort_folder):
    truth = everything(cohort_folder)
    best = sorted(truth, key=lambda key: (-round(truth[key], 12), *key))
    for where, wanted in (("cohort", best), ("slide", [key for key in best if key[0] == "S0"])):
        found = answer_of(client, f"where={where}&k=20")
        similarity = [one["similarity"] for one in found["patches"]]
        np.testing.assert_allclose(similarity, [truth[key] for key in wanted[:20]], atol=1e-12)
        assert ("S0", 7) not in {(one["slide"], one["patch"]) for one in found["patches"]}
        for one in found["patches"]:
            assert truth[one["slide"], one["patch"]] == pytest.approx(one["similarity"], abs=1e-12)


def test_similar_patches_say_where_they_lie(client, bench):
    found = answer_of(client, "where=cohort&k=18&per_slide=3")["patches"]
    assert Counter(one["slide"] for one in found) == {f"S{i}": 3 for i in range(6)}  # at most so many of each
    for one in found:
        assert [one["x"], one["y"]] == bench.patches(one["slide"]).corners[one["patch"]].tolist()
        assert one["picture"] == (one["slide"] in ("S0", "S1", "S2"))


def test_a_wrong_search_is_refused(client):
    for query in ("k=0", "k=201", "k=x", "k=-3", "per_slide=0", "where=/etc", "k=9999999999999999"):
        answer = client.get(f"/api/slides/S0/patches/7/similar?{query}")
        assert answer.status_code == 422, query
        assert query.partition("=")[0] in answer.get_json()["error"]


def test_slides_that_fail_are_noted_and_the_others_are_searched(cohort_folder):
    features = cohort_folder / "features"
    (features / "S1.h5").write_bytes((features / "S1.h5").read_bytes()[:3000])
    rewrite(features / "S2.h5", lambda x: x[:, :-1])
    rewrite(features / "S3.h5", lambda x: np.full_like(x, np.nan))
    answer = answer_of(entered(cohort_folder), "where=cohort&k=100")
    assert {one["slide"] for one in answer["patches"]} <= {"S0", "S4", "S5"}
    assert any("S1.h5" in note for note in answer["notes"])
    assert any("S2: features of mean (2 numbers)" in note for note in answer["notes"])


def test_a_file_that_became_a_link_out_of_the_folder_is_not_searched(client, cohort_folder, tmp_path):
    moved = (cohort_folder / "features" / "S1.h5").rename(tmp_path / "elsewhere.h5")
    (cohort_folder / "features" / "S1.h5").symlink_to(moved)
    found = answer_of(client, "where=cohort&k=12&per_slide=2")
    assert "S1" not in {one["slide"] for one in found["patches"]}
    assert "link out of the opened folders" in found["notes"][0]
    assert client.get("/api/slides/S1/patches/7/similar").status_code == 422


def test_a_patch_without_a_direction_is_compared_with_nothing(cohort_folder):
    rewrite(cohort_folder / "features" / "S0.h5", lambda x: np.where(np.arange(len(x))[:, None] == 7, 0, x))
    client = entered(cohort_folder)
    answer = answer_of(client, "where=cohort")
    assert answer["patches"] == []
    assert "nothing can be compared" in answer["notes"][0]


def test_progress_comes_line_by_line_and_the_last_line_is_the_answer(client):
    response = client.get("/api/slides/S0/patches/7/similar?where=cohort")
    lines = [json.loads(line) for line in response.get_data(as_text=True).splitlines()]
    assert lines[0] == {"done": 0, "of": 6}
    assert len(lines[-1]["patches"]) == 12


def test_a_browser_that_goes_away_stops_its_search(cohort_folder, monkeypatch):
    searched, begun, ended = [], threading.Event(), threading.Event()

    def watched(*arguments):
        try:
            yield from search(*arguments)
        finally:
            ended.set()

    def slowly(ref, query):
        searched.append(ref.sample)
        begun.set()
        time.sleep(0.3)
        return []

    monkeypatch.setattr(patch_page, "search_slide", slowly)
    monkeypatch.setattr(patch_page, "search", watched)
    with Viewer(Workbench(find_contents(cohort_folder))) as viewer:
        where = urlsplit(viewer.address)
        cookie = f"{viewer.guard.cookie}={viewer.guard.session}"
        with socket.create_connection((where.hostname, where.port)) as browser:
            request = f"GET /api/slides/S0/patches/7/similar?where=cohort HTTP/1.1\r\nHost: {where.netloc}\r\nCookie: {cookie}\r\n\r\n"
            browser.sendall(request.encode())
            assert begun.wait(10)
        assert ended.wait(30)
    assert len(searched) < 6


def test_a_search_beside_too_many_others_is_refused(bench, monkeypatch):
    monkeypatch.setattr(patch_page, "AT_ONCE", 0)
    answer = entered(bench).get("/api/slides/S0/patches/7/similar")
    assert answer.status_code == 503
    assert "try again" in answer.get_json()["error"]


def test_a_search_gives_its_place_to_the_next_one_also_when_it_fails(bench, monkeypatch):
    monkeypatch.setattr(patch_page, "AT_ONCE", 1)
    client = entered(bench)
    for _ in range(2):
        assert client.get("/api/slides/S0/patches/99999/similar").status_code == 422
        assert len(answer_of(client, "k=3")["patches"]) == 3

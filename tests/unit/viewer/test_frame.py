"""The frame: the page, its scripts, and the table of contents."""


def test_contents_are_found_by_what_files_hold(client):
    found = client.get("/api/contents").get_json()
    assert [one["name"] for one in found["slides"]] == [f"S{i}" for i in range(6)]
    assert [one["image"] for one in found["slides"]] == [True] * 3 + [False] * 3
    assert found["prototypes"] == [{"name": "prototypes", "count": 3}]
    assert found["slides"][1]["patient"] == "P0"


def test_the_page_and_its_scripts_are_served(client):
    assert b"static/app.js" in client.get("/").data
    assert client.get("/static/app.js").mimetype in ("text/javascript", "application/javascript")
    assert client.get("/static/../server.py").status_code == 404


def test_patches_know_their_prototype_and_their_place(bench):
    found = bench.patches("S0")
    assert (found.canvas.width, found.canvas.height, found.canvas.mpp) == (1500, 1130, 0.5)
    assert found.assignment.shape == (len(found.corners), 3)
    assert found.notes == ()
    blank = bench.patches("S4")
    assert not blank.canvas.image
    assert (blank.corners >= 0).all()

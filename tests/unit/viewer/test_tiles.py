"""Routes of the slide page: its layers, base tiles, overlay tiles, patches for the pointer, neighbours."""

import struct

import h5py
import numpy as np
import pytest

from explain.known_regions import COLOURS, HEIGHT, SIDE, WIDTH, tissue_at, truth
from panther.errors import InputError
from panther.explain.palette import PALETTE, rgb_values
from panther.explain.slide_map import heat_colours
from panther.slides import Slide
from panther.verbs.map import make_map
from panther.viewer.tiles import maker, render
from slides.phantoms import write_pyramid
from viewer.asking import entered, picture

RGB = rgb_values(PALETTE).tolist()


def test_a_slide_lists_its_layers(client):
    found = client.get("/api/slides/S0").get_json()
    assert (found["width"], found["height"], found["mpp"], found["image"]) == (WIDTH, HEIGHT, 0.5, True)
    assert (found["zooms"], found["tile"], found["pitch"]) == (4, 256, SIDE)
    assert [layer["id"] for layer in found["layers"]] == ["prototypes", "posterior", "grid"]
    assert len(found["layers"][0]["classes"]) == 3 == len(found["weights"])
    assert sum(found["weights"]) == pytest.approx(1, abs=1e-3)
    assert client.get("/api/slides/S4").get_json()["image"] is False


def test_the_size_of_a_slide_is_known_before_its_features_are_read(client, bench, monkeypatch):
    whole = client.get("/api/slides/S0").get_json()
    monkeypatch.setattr(bench, "patches", lambda *_: pytest.fail("the features were read"))
    early = client.get("/api/slides/S0/canvas").get_json()
    assert early["zooms"] == 4
    assert early == {name: whole[name] for name in early}
    assert client.get("/api/slides/S4/canvas").status_code == 404  # no image


def test_base_tiles_show_the_slide_and_white_around_it(client):
    finest = picture(client, "/tiles/S0/3/1/2.jpg", "RGB").astype(int)
    expected = COLOURS[tissue_at(*np.meshgrid(np.arange(256, 512) + 0.5, np.arange(512, 768) + 0.5))]
    assert finest.shape == (256, 256, 3)
    assert np.abs(finest - expected).mean() < 2
    whole = picture(client, "/tiles/S0/0/0/0.jpg", "RGB").astype(int)
    width, height = WIDTH // 8, HEIGHT // 8
    assert np.abs(whole[:height, :width] - COLOURS[truth(width, height)]).mean() < 4
    assert whole[height + 9 :].min() > 250


def test_unknown_slides_tiles_and_layers_are_not_found(client):
    for address in (
        "/tiles/S0/4/0/0.jpg",
        "/tiles/S0/3/6/0.jpg",
        "/tiles/S0/3/0/5.jpg",
        "/tiles/S4/0/0/0.jpg",
        "/tiles/nobody/0/0/0.jpg",
        "/tiles/../0/0/0.jpg",
        "/tiles/S0/-1/0/0.jpg",
        "/layers/S0/nothing/0/0/0.png",
        "/layers/S0/prototypes/9/0/0.png",
        "/layers/S0/prototypes/0/0/0.png?set=other",
        "/api/slides/nobody",
        "/api/slides/nobody/patches",
        "/api/slides/nobody/neighbours",
    ):
        answer = client.get(address)
        assert answer.status_code == 404, address
        assert answer.get_json()["error"]


def test_wrong_parameters_of_a_layer_are_refused_by_their_value(client):
    for query, culprit in {"prototype=3": "3", "prototype=x": "x", "shown=1,-2": "2", "low=nan": "nan", "high=much": "much"}.items():  # fmt: skip
        answer = client.get(f"/layers/S0/posterior/0/0/0.png?{query}")
        assert answer.status_code == 422, query
        assert culprit in answer.get_json()["error"]


def test_neighbours_on_a_slide_are_those_of_its_map(client, cohort_folder):
    answer = client.get("/api/slides/S0/neighbours").json
    bag, prototypes = cohort_folder / "features" / "S0.h5", cohort_folder / "prototypes.safetensors"
    expected = make_map(bag, prototypes, names=cohort_folder / "names.yaml")["S0"]
    assert answer["sentences"] == expected.numbers()["neighbours"]
    assert len(answer["rows"]) == expected.prototypes
    relation = answer["rows"][1][0]
    assert relation["prototype"] == 0
    assert relation["times"] == 2.0 ** expected.touching.log_ratio()[1, 0]
    assert relation["border"] == expected.touching.border()[1, 0]
    assert 0 <= relation["inside"] <= 1
    with h5py.File(cohort_folder / "features" / "S1.h5", "a") as file:
        del file["coords"]
    assert client.get("/api/slides/S1/neighbours").json == {"sentences": [], "rows": []}


def test_prototypes_have_their_colours_and_can_be_isolated(client, bench):
    found = bench.patches("S0")
    x, y = np.meshgrid(np.arange(256, 512), np.arange(256, 512))  # tile 1, 1 of the finest zoom
    cell = {
        tuple(corner): label for corner, label in zip(found.corners.astype(int).tolist(), found.labels, strict=True)
    }
    labels = np.array([[cell.get((a // SIDE * SIDE, b // SIDE * SIDE), -1) for a in x[0]] for b in y[:, 0]])
    seen = picture(client, "/layers/S0/prototypes/3/1/1.png")
    for c in range(3):
        assert (seen[labels == c] == (*RGB[c], 255)).all()
    assert (seen[labels < 0, 3] == 0).all()
    alone = picture(client, "/layers/S0/prototypes/3/1/1.png?shown=1")
    assert ((alone[..., 3] == 255) == (labels == 1)).all()
    assert (labels == 1).any()


def test_a_posterior_is_shown_on_a_scale_and_above_a_threshold(client, bench):
    found = bench.patches("S0")
    x, y = found.corners[0].astype(int)
    tile, at = (x // 256, y // 256), (y % 256 + 3, x % 256 + 3)
    shares = found.assignment[0]
    for c in range(3):
        seen = picture(client, f"/layers/S0/posterior/3/{tile[0]}/{tile[1]}.png?prototype={c}")
        expected = heat_colours(np.round(shares[c : c + 1] * 254) / 254)[0]
        assert np.abs(seen[at][:3].astype(int) - expected).max() <= 2
        assert seen[at][3] == pytest.approx(255 * shares[c], abs=2)
    least = int(shares.argmin())
    hidden = picture(client, f"/layers/S0/posterior/3/{tile[0]}/{tile[1]}.png?prototype={least}&low=0.9")
    assert hidden[at][3] == 0


def test_all_patches_are_sent_at_once_for_the_pointer(client, bench):
    found = bench.patches("S1")
    data = client.get("/api/slides/S1/patches").data
    count, classes, pitch, _ = struct.unpack("<IIfI", data[:16])
    assert (count, classes, pitch) == (len(found.corners), 3, SIDE)
    padded = count + count % 2
    assert len(data) == 16 + 8 * count + 2 * padded + 4 * count
    assert (np.frombuffer(data, "<f4", count, 16) == found.corners[:, 0]).all()
    assert (np.frombuffer(data, "<f4", count, 16 + 4 * count) == found.corners[:, 1]).all()
    assert (np.frombuffer(data, "<u2", count, 16 + 8 * count) == found.labels).all()
    assert (np.frombuffer(data, "<f4", count, 16 + 8 * count + 2 * padded) == found.assignment.max(1)).all()


def test_browsers_may_keep_tiles(client):
    first = client.get("/layers/S0/prototypes/0/0/0.png")
    assert "max-age" in first.headers["Cache-Control"]
    again = client.get("/layers/S0/prototypes/0/0/0.png", headers={"If-None-Match": first.headers["ETag"]})
    assert again.status_code == 304
    assert again.data == b""


def test_a_patch_is_shown_at_full_resolution_and_in_any_size(client, bench):
    found = bench.patches("S0")
    number = 17
    x, y = found.corners[number].astype(int)
    whole = picture(client, f"/tiles/S0/patch/{number}.jpg", "RGB").astype(int)
    assert whole.shape == (SIDE, SIDE, 3)
    expected = COLOURS[tissue_at(*np.meshgrid(np.arange(x, x + SIDE) + 0.5, np.arange(y, y + SIDE) + 0.5))]
    assert np.abs(whole - expected).mean() < 6  # JPEG at the borders of flat colours
    assert picture(client, f"/tiles/S0/patch/{number}.jpg?size=200", "RGB").shape == (200, 200, 3)
    assert client.get("/tiles/S0/patch/99999.jpg").status_code == 404
    assert client.get("/tiles/S4/patch/1.jpg").status_code == 404  # no image
    assert client.get("/tiles/S0/patch/1.jpg?size=100000").status_code == 422


def test_slides_without_a_pyramid_are_made_small_once(tmp_path, monkeypatch):
    (tmp_path / "slides").mkdir()
    image = COLOURS[truth(WIDTH, HEIGHT)]
    write_pyramid(tmp_path / "slides" / "flat.tif", image, 0.5, levels=1)
    monkeypatch.setattr(render, "OVERVIEW", 512)
    monkeypatch.setattr(render, "FAR", 2)
    read, original = [], maker.read_overview
    monkeypatch.setattr(maker, "read_overview", lambda *given: read.append(given) or original(*given))
    client = entered(tmp_path)
    seen = {z: picture(client, f"/tiles/flat/{z}/0/0.jpg", "RGB").astype(int) for z in (0, 1, 2, 3)}
    second = picture(client, "/tiles/flat/1/1/0.jpg", "RGB").astype(int)
    assert len(read) == 1
    for z, step in ((0, 8), (1, 4), (2, 2), (3, 1)):
        expected = COLOURS[truth(WIDTH, HEIGHT)][step // 2 :: step, step // 2 :: step][:250, :187].astype(int)
        part = seen[z][: expected.shape[0], : expected.shape[1]]
        assert np.median(np.abs(part - expected).max(-1)) < 3
        assert (np.abs(part - expected).max(-1) > 60).mean() < 0.08  # borders of tissues
    assert second[:, 1500 // 4 - 256 + 2 :].min() > 245  # white beyond the slide


def test_a_damaged_tile_is_an_error_and_the_others_are_shown(client, monkeypatch):
    read = Slide.resampled

    def damaged(slide, level, box, *more):
        if box[0] < 256 and box[1] < 256:
            raise InputError("S0.tif: the pixels at (0, 0) of level 0 cannot be decoded")
        return read(slide, level, box, *more)

    monkeypatch.setattr(Slide, "resampled", damaged)
    for _ in range(2):
        answer = client.get("/tiles/S0/3/0/0.jpg")
        assert answer.status_code == 422
        assert "cannot be decoded" in answer.get_json()["error"]
        assert client.get("/tiles/S0/3/2/2.jpg").status_code == 200


def test_with_a_damaged_image_patches_are_shown_on_a_blank_canvas(cohort_folder):
    (cohort_folder / "slides" / "S0.tif").write_bytes(b"not a slide")
    (cohort_folder / "features" / "S1.h5").unlink()
    client = entered(cohort_folder)
    found = client.get("/api/slides/S0").get_json()
    assert found["image"] is False
    assert "S0.tif" in found["notes"][0]
    assert found["patches"] > 0
    assert client.get("/layers/S0/prototypes/0/0/0.png").status_code == 200
    bare = client.get("/api/slides/S1").get_json()  # an image without features
    assert (bare["image"], bare["patches"], bare["layers"], bare["weights"]) == (True, 0, [], None)
    assert "no features" in bare["notes"][0]
    assert client.get("/tiles/S1/0/0/0.jpg").status_code == 200
    assert struct.unpack("<IIfI", client.get("/api/slides/S1/patches").data) == (0, 0, 0.0, 0)
    assert client.get("/layers/S1/prototypes/0/0/0.png").status_code == 404
    assert client.get("/export/S1.png?pixels=200").status_code == 200
    assert client.get("/export/S1.geojson").status_code == 404

"""Exports: pictures of the view, and regions."""

import json
import re

import numpy as np
import pytest

from explain.known_regions import COLOURS, HEIGHT, SIDE, WIDTH, tissue_at
from panther.explain.palette import PALETTE, rgb_values
from viewer.asking import picture

RGB = rgb_values(PALETTE).tolist()


def exported(client, address):
    return picture(client, address, "RGB").astype(int)


def seen_in(picture, width=400, height=300):
    """The view within the picture: after a margin of 14 pixels, below a title of 30."""
    return picture[30 : 30 + height, 14 : 14 + width]


def test_the_view_is_in_the_picture_pixel_for_pixel(client):
    image = exported(client, "/export/S0.png?x=300&y=200&width=400&height=300&pixels=400")
    x, y = np.meshgrid(np.arange(300, 700) + 0.5, np.arange(200, 500) + 0.5)
    expected = COLOURS[tissue_at(x, y)].astype(int)
    assert (seen_in(image)[:200] == expected[:200]).all()  # below is the scale bar
    bar = (seen_in(image)[288] == 34).all(-1).nonzero()[0]
    assert len(bar) == pytest.approx(100, abs=2)  # 50 um of 0.5 um per pixel; its ends are smoothed
    assert (image[:30].min(), image[:, :14].min()) == (34, 255)  # title in ink, white around


def test_layers_lie_over_the_slide_with_their_opacity(client, bench):
    plain = exported(client, "/export/S0.png?x=300&y=200&width=400&height=300&pixels=400")
    over = exported(client, "/export/S0.png?x=300&y=200&width=400&height=300&pixels=400&layer=prototypes&opacity=0.5")
    found = bench.patches("S0")
    labels = {tuple(corner): c for corner, c in zip(found.corners.astype(int).tolist(), found.labels, strict=True)}
    for px, py in ((5, 7), (150, 99), (390, 120), (200, 180)):
        here = labels.get(((300 + px) // SIDE * SIDE, (200 + py) // SIDE * SIDE))
        under = seen_in(plain)[py, px]
        expected = under if here is None else (under + np.array(RGB[int(here)])) / 2
        assert np.abs(seen_in(over)[py, px] - expected).max() <= 1
    assert over.shape[1] > plain.shape[1] + 50  # a legend


def test_an_svg_has_its_title_and_legend_as_text(client):
    answer = client.get("/export/S0.svg?layer=prototypes,grid&opacity=0.5,1&pixels=300")
    assert answer.mimetype == "image/svg+xml"
    text = answer.get_data(as_text=True)
    words = re.sub("<[^>]+>", " ", text)
    for word in ("stroma", "tumour nest", "C2", "S0: Prototypes, Patch borders"):
        assert word in words, word
    assert "<script" not in text
    assert "filename=S0.svg" in answer.headers["Content-Disposition"]


def test_the_colour_bar_of_values_has_the_shown_range(client):
    words = re.sub("<[^>]+>", " ", client.get("/export/S0.svg?layer=posterior&prototype=1&low=0.25&pixels=300").text)
    assert "tumour nest" in words
    assert "share of the patch, shown from 0.25 to 1" in words


def test_without_an_image_patches_are_drawn_on_white(client):
    image = exported(client, "/export/S4.png?layer=prototypes&pixels=500")
    for c in range(3):
        assert (np.abs(image - RGB[c]).max(-1) == 0).sum() > 500


def test_a_wrong_view_is_refused_and_a_tall_one_stays_within_limits(client):
    assert exported(client, f"/export/S0.png?x=0&y=0&width=40&height={HEIGHT}&pixels=2000").shape[0] < 4096 + 300
    for query, culprit in {
        "width=-3": "width",
        "x=nan": "x: found 'nan'",
        "pixels=1000000": "4096",
        "pixels=3.5": "pixels",
        "layer=prototypes&opacity=7": "opacity",
        "width=1e300": "width",
        "width=5000&height=0.001": "5000 x 0.001",
    }.items():
        answer = client.get(f"/export/S0.png?{query}")
        assert answer.status_code == 422, query
        assert culprit in answer.get_json()["error"]
    for unknown in ("S0.png?layer=wishes", "nobody.png", "nobody.geojson", "S0.exe", "S0.png?layer=attention"):
        assert client.get(f"/export/{unknown}").status_code == 404, unknown


def test_regions_have_the_names_and_cover_their_patches(client, bench):
    answer = client.get("/export/S0.geojson")
    found = json.loads(answer.data)
    kinds = {one["properties"]["classification"]["name"] for one in found["features"]}
    assert kinds == {"C0 stroma", "C1 tumour nest", "C2"}
    patches = sum(one["properties"]["measurements"]["Patches"] for one in found["features"])
    assert patches == len(bench.patches("S0").corners)
    x = [point[0] for one in found["features"] for ring in one["geometry"]["coordinates"] for point in ring]
    assert 0 <= min(x) <= max(x) <= WIDTH
    alone = json.loads(client.get("/export/S0.geojson?shown=1").data)
    assert {one["properties"]["name"] for one in alone["features"]} == {"C1 tumour nest"}

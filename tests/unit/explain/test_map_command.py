"""The command, from files to files; a request that makes no sense is one sentence."""

import json

import h5py
import numpy as np
import pytest
import torch
from known_regions import SIDE, contents, write_bag, write_slide
from PIL import Image

from commands import run
from panther.explain import palette
from panther.explain.atlas_files import to_dict
from panther.explain.names import as_namings
from panther.slides import Polygon, Tissue
from panther.slides.polygons import write_contours
from panther.storage.prototypes import save_prototypes
from panther.types import Prototypes
from panther.verbs.atlas import make_atlas
from panther.verbs.map import make_map


def invoke(*arguments, code=0):
    """Run `panther map`."""
    return run("map", *arguments, code=code)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    write_slide(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_pictures_and_regions_are_written_and_the_same_bytes_again(folder):
    (folder / "n.yaml").write_text("C1: nest, 1 & <2>\n")
    ring = np.array([[100, 100], [1000, 100], [1000, 1000]])
    write_contours(folder / "c.geojson", Tissue((Polygon(ring),)), {})
    arguments = ("s.h5", "-p", "p.safetensors", "--slides", "s.tif", "--names", "n.yaml", "--contours", "c.geojson")
    arguments = (*arguments, "--max-side", 300, "--formats", "png,svg,geojson,csv", "--prototype", "C1")
    invoke(*arguments, "-o", "a")
    invoke(*arguments, "-o", "b")
    first = contents(folder / "a")
    assert list(first) == [
        "s.geojson", "s.heatmap.C1.png", "s.heatmap.C1.svg", "s.map.png", "s.map.svg", "s.neighbours.csv", "s.neighbours.png",
        "s.neighbours.svg", "s.overlay.png", "s.side_by_side.png", "s.side_by_side.svg",
    ]  # fmt: skip
    assert first == contents(folder / "b")
    with Image.open(folder / "a" / "s.overlay.png") as overlay:
        assert overlay.size == (300, 226)
    assert b"nest, 1 &amp; &lt;2&gt;" in first["s.map.svg"]
    classes = {f["properties"]["classification"]["name"] for f in json.loads(first["s.geojson"])["features"]}
    assert classes == {"C0", "C1 nest, 1 & <2>", "C2"}


@pytest.mark.parametrize("how", [("--method", "ot"), ("--method", "h2t"), ("--method", "protocounts"), ("--preset", "published-code")])  # fmt: skip
def test_other_assignments_are_mapped_too(folder, how):
    result = json.loads(invoke("s.h5", "-p", "p.safetensors", "-o", "m", *how, "--json", "--max-side", 100).stdout)
    assert sum(result["slides"][0]["weights"].values()) == pytest.approx(1, abs=1e-5)


def test_a_folder_goes_on_after_a_bad_slide_and_notes_what_is_missing(folder):
    (folder / "f").mkdir()
    (folder / "s.h5").rename(folder / "f" / "s.h5")
    write_bag(folder / "f" / "zero.h5", np.zeros((0, 3)), np.zeros((0, 2), int))
    write_bag(folder / "f" / "other.h5", np.ones((2, 3)), np.array([[0, 0], [SIDE, 0]]))
    (folder / "slides").mkdir()
    (folder / "s.tif").rename(folder / "slides" / "s.tif")
    result = invoke("f", "-p", "p.safetensors", "-o", "m", "--slides", "slides", "--json", "--max-side", 100, code=1)
    content = json.loads(result.stdout)
    assert [one["slide"] for one in content["slides"]] == ["other", "s"]
    assert "zero patches" in content["failures"]["zero"]
    assert any(note.startswith("other: no slide image") for note in content["notes"])


def test_a_table_of_resolutions_goes_before_the_tags(folder):
    (folder / "mpp.csv").write_text("wsi,mpp\ns.tif,0.25\n")
    invoke("s.h5", "-p", "p.safetensors", "-o", "m", "--slides", "s.tif", "--slide-mpp-table", "mpp.csv")
    about = json.loads((folder / "m" / "s.geojson").read_text())["features"][0]["properties"]["measurements"]
    assert about["Area mm^2"] == pytest.approx(about["Patches"] * (SIDE * 0.25e-3) ** 2)


def test_impossible_requests_are_refused(folder, refused):
    usual, grid = ("s.h5", "-p", "p.safetensors"), np.array([[0, 0], [SIDE, 0]])
    (folder / "n.yaml").write_text("C7: tumour\n")
    save_prototypes(Prototypes(torch.zeros(2, 3), encoder="uni"), folder / "uni.safetensors")
    save_prototypes(Prototypes(torch.zeros(2, 4), encoder="mean"), folder / "wide.safetensors")
    np.save(folder / "c.npy", np.ones((2, 3), np.float32))
    (folder / "t.h5").write_bytes((folder / "s.h5").read_bytes()[:3000])
    bags = {
        "zero patches": (np.zeros((0, 3)), np.zeros((0, 2), int)),
        "no coordinates": (np.ones((2, 3)), None),
        "row 1": (np.array([[1, 2, 3], [1, np.nan, 3]]), grid),
    }
    for culprit, bag in bags.items():
        refused(culprit, "map", write_bag(folder / "b.h5", *bag), *usual[1:])
    away = write_bag(folder / "e.h5", np.ones((2, 3)), grid + 5000)
    for culprit, *arguments in (
        ("n.yaml", *usual, "--names", "n.yaml"),
        ("missing.svs", *usual, "--slides", "missing.svs"),
        ("'C3'", *usual, "--prototype", "C3"),
        ("--formats: found 'gif'", *usual, "--formats", "gif"),
        ("background", *usual, "--background", "pink"),
        ("'preset'", *usual, "--method", "ot", "--preset", "paper"),
        ("method: ", *usual, "--method", "deepsets"),
        ("none.geojson", *usual, "--contours", "none.geojson"),
        ("different encoders", "s.h5", "-p", "uni.safetensors"),
        ("3-dimensional", "s.h5", "-p", "wide.safetensors"),
        ("no coordinates", "c.npy", *usual[1:]),
        ("t.h5", "t.h5", *usual[1:]),
        ("2 of 2 patches lie outside s.tif", away, *usual[1:], "--slides", "s.tif"),
    ):
        refused(culprit, "map", *arguments)


def test_micrometres_without_the_image_give_a_picture_and_a_note(folder):
    with h5py.File(folder / "u.h5", "w") as file:
        file["feats"] = np.ones((3, 3), np.float32)
        file["coords"] = np.array([[0.0, 0.0], [30.0, 0.0], [0.0, 30.0]])
        file.attrs.update({"tile_size_um": 30.0, "tile_size_px": 60})
    result = invoke("u.h5", "-p", "p.safetensors", "-o", "m", "--json")
    assert any("no GeoJSON" in note for note in json.loads(result.stdout)["notes"])
    assert not (folder / "m" / "u.geojson").exists()
    invoke("u.h5", "-p", "p.safetensors", "-o", "m", "--slides", "s.tif")
    (feature,) = json.loads((folder / "m" / "u.geojson").read_text())["features"]
    assert sorted(map(tuple, feature["geometry"]["coordinates"][0]))[-1] == (120, 60)  # 30 um are 60 pixels


def test_colours_and_groups_of_the_names_file_are_those_of_map_regions_and_atlas(tmp_path):
    image, features, prototypes = write_slide(tmp_path)
    names = tmp_path / "names.yaml"
    names.write_text('C0: {name: disc, colour: "#123456", group: inner}\nC1: {name: nest, group: inner}\nC2: band\n')
    found = make_map(features, prototypes, slides=image, names=names)["s"]
    assert found.prototype_colours == ["#123456", "#123456", palette.colour(2)]
    disc, band = [0x12, 0x34, 0x56], palette.rgb_values([palette.colour(2)])[0].tolist()
    assert set(map(tuple, found.patch_colours.tolist())) == {tuple(disc), tuple(band)}
    make_map(features, prototypes, slides=image, names=names, output=tmp_path / "out", formats=["geojson"])
    write_bag(tmp_path / "t.h5", np.array([[6, 9, 20], [8, 17, 6]]), np.array([[0, 0], [SIDE, 0]]))  # another slide
    make_map(tmp_path / "t.h5", prototypes, names=names, output=tmp_path / "out", formats=["geojson"])
    regions = [r for s in "st" for r in json.loads((tmp_path / "out" / f"{s}.geojson").read_text())["features"]]
    classes = [region["properties"]["classification"] for region in regions]
    assert {(row["name"], *row["color"]) for row in classes} == {
        ("C0 disc", *disc),
        ("C1 nest", *disc),
        ("C2 band", *band),
    }
    atlas = make_atlas(features, prototypes, names=names, output=tmp_path / "atlas")
    assert [row["colour"] for row in to_dict(atlas)["prototypes"]] == found.prototype_colours
    assert as_namings(tmp_path / "atlas" / "names.yaml", 3) == as_namings(names, 3)

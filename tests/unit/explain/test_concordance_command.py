"""`panther tissue-classifier` and `panther concordance` from files to files, on a painted slide and on mosaics of real tiles."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from known_regions import COLOURS, SIDE, contents, csv_rows, tissue_at, write_bag, write_slide
from PIL import Image

from cli.running import strict_json
from panther.explain import as_names
from panther.explain.names import Naming, as_namings
from panther.explain.palette import PALETTE
from panther.storage.prototypes import save_prototypes
from panther.storage.readers import open_bag
from panther.types import Prototypes

CLASSES = ("disc", "nest", "band")  # of the painted slide's tissues 1 to 3, which are C0 to C2


@pytest.fixture
def folder(tmp_path, run):
    """A painted slide, its prototypes, a tissue classifier of its colours, the true labels of its patches."""
    write_slide(tmp_path)
    rng = np.random.default_rng(0)
    (tmp_path / "tiles").mkdir()
    for name, colour in zip(CLASSES, COLOURS[1:] / 10.0, strict=True):
        write_bag(tmp_path / "tiles" / f"{name}.h5", colour + rng.normal(size=(20, 3)) * 0.3, None)
    coords = open_bag(tmp_path / "s.h5").coords
    tissue = tissue_at(*(coords + SIDE / 2).T)
    rows = [f"s,{x},{y},{CLASSES[t - 1]}" for (x, y), t in zip(coords.tolist(), tissue, strict=True)]
    (tmp_path / "labels.csv").write_text("slide_id,x,y,label\n" + "\n".join(rows))
    run("tissue-classifier", "tiles", "-o", "classifier.safetensors")
    return tmp_path


USUAL = ("concordance", "s.h5", "-p", "p.safetensors")
CLASSIFIER = ("--classifier", "classifier.safetensors")
NEST = (*CLASSIFIER, "--positive", "nest")
LABELS = ("--patch-labels", "labels.csv")


def written():
    return strict_json(Path("a/concordance.json").read_text())


@pytest.fixture
def compare(folder, run):
    """Compare the painted slide; returns `concordance.json`, standard output and standard error."""

    def command(*more):
        out, err = run(*USUAL, "-o", "a", *more)
        return written(), out, err

    return command


def test_prototypes_get_the_classes_they_were_made_from(folder, compare):
    content, out, _ = compare(*CLASSIFIER, "--slides", "s.tif", "--max-side", 300)
    assert [row["class"] for row in content["prototypes"]] == list(CLASSES)
    assert content["agreement"]["accuracy"] > 0.95
    assert as_names(folder / "a" / "names.suggested.yaml", 3) == dict(enumerate(CLASSES))
    rows = csv_rows(folder / "a" / "confusion.csv")
    shares = np.array([[float(row[f"share {name}"]) for name in ("band", "disc", "nest")] for row in rows])
    assert (shares.sum(1).round(9).tolist(), shares.argmax(1).tolist()) == ([1] * 3, [1, 2, 0])
    assert list(contents(folder / "a")) == [
        "classes.csv", "concordance.json", "concordance.png", "confusion.csv", "names.suggested.yaml", "prototypes.csv",
        "s.classes.png", "slides.csv",
    ]  # fmt: skip
    assert "nest" in out


def test_true_labels_agree_with_the_known_regions(compare):
    agreement = compare(*LABELS, "--no-maps")[0]["agreement"]
    # border patches are mixed, so not 1; issue 7 asks for 0.85 and 0.7
    assert agreement["accuracy"] >= 0.9
    assert agreement["ari"] >= 0.8
    assert agreement["accuracy_by"].keys() == {"members", "members_of_other_slides"}


@pytest.mark.parametrize("image", [(), ("--slides", "s.tif")])
def test_tumour_is_drawn_beside_its_prototype(folder, compare, image):
    slide = compare(*NEST, *image, "--max-side", 300)[0]["slides"][0]
    assert slide["tumour_prototype"] == 1
    assert slide["tumour_auroc"] > 0.95
    assert slide["tumour_dice"] > 0.9
    with Image.open(folder / "a" / "s.tumour.png") as picture:
        pixels = np.asarray(picture.convert("RGB")).astype(int)
    yellow = (pixels[..., 0] > 150) & (pixels[..., 1] > 130) & (pixels[..., 2] < 130)  # viridis at 1, over any image
    assert yellow.any()


def test_a_folder_goes_on_after_a_bad_slide_and_slides_without_coordinates_are_counted(folder, run):
    Path("f").mkdir()
    shutil.copy("s.h5", "f/s.h5")
    write_bag(folder / "f" / "empty.h5", np.zeros((0, 3)), np.zeros((0, 2), int))  # fails when it is counted
    Path("images").mkdir()
    Path("images/s.tif").write_bytes(b"no image")  # fails when it is drawn, the last failure
    _, err = run("concordance", "f", *USUAL[2:], "-o", "a", *CLASSIFIER, "--slides", "images", code=2)
    assert "s.tif" in err
    assert "zero patches" not in err
    write_bag(folder / "f" / "bare.h5", COLOURS[[1, 2]] / 10.0, None)
    out, _ = run("concordance", "f", *USUAL[2:], "-o", "a", *NEST, "--json", "--max-side", 100, code=1)
    content = json.loads(out)
    assert [slide["slide"] for slide in content["slides"]] == ["bare", "s"]
    assert content["slides"][0]["accuracy"] == 1
    assert list(content["failures"]) == ["empty"]
    assert any(note.startswith("bare: ") for note in content["notes"])


def test_impossible_requests_are_refused(folder, refused):
    for culprit, *more in (
        ("classifier: ",),
        ("classifier: ", *CLASSIFIER, *LABELS),
        ("positive: found tumour", *CLASSIFIER, "--positive", "tumour"),
        ("positive: ", *CLASSIFIER, "--positive", "band,disc,nest"),
        ("p.safetensors", "--classifier", "p.safetensors"),
    ):
        refused(culprit, *USUAL, *more)
    Path("labels.csv").write_text("slide_id,x,y,label\ns,1,1,a\ns,2,2,b\n")
    refused("labels.csv", *USUAL, *LABELS)
    save_prototypes(Prototypes(torch.zeros(2, 3), encoder="uni"), folder / "p.safetensors")
    refused("'uni'", *USUAL, *CLASSIFIER)


def test_notes_and_colours_of_the_names_are_kept(compare):
    Path("n.yaml").write_text('C1: {name: nest, note: "solid: #1", colour: "#010203", group: inner}\n')
    content, *_ = compare(*LABELS, "--names", "n.yaml", "--no-maps")
    assert [row["colour"] for row in content["prototypes"]] == [PALETTE[0], "#010203", PALETTE[2]]
    suggested = as_namings(Path("a/names.suggested.yaml"), 3)
    assert suggested == {0: Naming("disc"), 1: Naming("nest", "solid: #1", "#010203", "inner"), 2: Naming("band")}

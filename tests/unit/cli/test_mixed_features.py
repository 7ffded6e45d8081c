"""Features of another encoder or resolution are refused by name wherever they would meet, unless the user says that they are meant."""

import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

import anndata
import h5py
import numpy as np
import pytest

from panther import load_prototypes
from panther.cli import main
from panther.models.model import load_model
from panther.types import PatchSpec

MIXED = "--allow-mixed-resolution"


def write_bags(folder: Path, names: Iterable[str], magnification: float | None = 20, encoder: str = "uni_v1") -> None:
    """Bags as TRIDENT writes them: 24 patches of 256 px in two tissues; without a magnification as CLAM writes them."""
    folder.mkdir(exist_ok=True)
    for seed, name in enumerate(names):
        rng = np.random.default_rng([seed, len(name)])
        rows = rng.normal(size=(24, 6)) + 6 * (np.arange(24) % 2)[:, None]
        corners = np.stack(np.meshgrid(np.arange(6), np.arange(4)), -1).reshape(-1, 2) * 512
        with h5py.File(folder / f"{name}.h5", "w") as file:
            file["features"], file["coords"] = rows.astype(np.float32), corners
            if magnification is not None:
                size0 = round(256 * 40 / magnification)
                geometry = {"patch_size": 256, "patch_size_level0": size0, "level0_magnification": 40}
                file["features"].attrs["encoder"] = encoder
                file["coords"].attrs.update({**geometry, "target_magnification": magnification})


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Six slides at 20x and six at 10x, a table of all, prototypes and models of the first."""
    tmp_path = tmp_path_factory.mktemp("lab")
    fine, coarse = [f"a{i}" for i in range(6)], [f"b{i}" for i in range(6)]
    write_bags(tmp_path / "fine", fine)
    write_bags(tmp_path / "coarse", coarse, 10)
    rows = [f"{name},{name},{'xy'[i % 2]}" for i, name in enumerate([*fine, *coarse])]
    (tmp_path / "cohort.csv").write_text("slide_id,case_id,label\n" + "\n".join(rows))
    (tmp_path / "fine.csv").write_text("slide_id,case_id,label\n" + "\n".join(rows[:6]))
    train = "train fine --table fine.csv --label label"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        for line in (
            "prototypes fine -C 2 -o p.safetensors",
            f"{train} -p p.safetensors -o panther",
            f"{train} --method abmil --epochs 1 -o abmil",
        ):
            patch.setattr(sys, "argv", ["panther", *line.split()])
            with pytest.raises(SystemExit, match="0"):
                main()
    return tmp_path


@pytest.fixture
def lab(made, tmp_path, monkeypatch):
    """A copy of it, to work in."""
    monkeypatch.chdir(shutil.copytree(made, tmp_path / "lab"))
    return tmp_path / "lab"


def pooled(folder: Path, fine: int, coarse: int) -> None:
    """A folder with some of both resolutions."""
    write_bags(folder, [f"a{i}" for i in range(fine)])
    write_bags(folder, [f"b{i}" for i in range(coarse)], 10)


@pytest.mark.parametrize("command", [("prototypes", "-C", 2), ("train", "--table", "cohort.csv", "--label", "label")])
def test_bags_of_two_resolutions_are_refused_and_few_of_another_are_left_out(lab, panther, command):
    pooled(lab / "both", 6, 6)
    pooled(lab / "few", 6, 1)
    output = (*command[1:], "-o", "q.safetensors")
    _, err = panther(command[0], "both", *output, code=2)
    for text in ("256 px at 0.5 um/px (128 um)", "256 px at 1 um/px (256 um)", MIXED):
        assert text in err
    assert not (lab / "q.safetensors").exists()
    panther(command[0], "both", *output, MIXED)
    _, err = panther(command[0], "few", *output, code=1)
    assert "b0: has patches of 256 px at 1 um/px (256 um), the cohort patches of 256 px at 0.5 um/px" in err


@pytest.mark.parametrize(
    "command",
    [
        ("embed", "coarse", "-p", "p.safetensors", "-o", "s.npz"),
        ("map", "coarse/b0.h5", "-p", "p.safetensors", "-o", "maps", "--formats", "geojson"),
        ("map", "coarse/b0.h5", "--model", "abmil", "-o", "maps", "--formats", "png"),
        ("atlas", "coarse", "-p", "p.safetensors", "-o", "atlas"),
        ("predict", "panther", "coarse", "-o", "out.csv"),
        ("predict", "abmil", "coarse", "-o", "out.csv"),
        ("attribute", "panther", "coarse", "-o", "attribution", "--no-maps"),
    ],
    ids=lambda command: "_".join(map(str, command[:2])),
)
def test_prototypes_and_models_of_20x_refuse_bags_of_10x(lab, panther, command):
    _, err = panther(*command, code=2)
    assert "b0.h5: its patches are of 256 px at 1 um/px (256 um)" in err
    assert "patches of 256 px at 0.5 um/px (128 um)" in err
    assert "--allow-mixed-resolution" in err
    panther(*command, MIXED)


def test_prototypes_of_two_resolutions_are_compared_only_with_the_option(lab, panther):
    panther("prototypes", "coarse", "-C", 2, "-o", "q.safetensors")
    both = ("compare-prototypes", "p.safetensors", "q.safetensors")
    assert "at 1 um/px" in panther(*both, code=2)[1]
    panther(*both, MIXED)


def test_the_slides_of_a_patient_share_one_resolution(lab, panther):
    pooled(lab / "both", 1, 1)
    (lab / "one.csv").write_text("slide_id,case_id\na0,p\nb0,p\n")
    by = ("embed", "both", "-p", "p.safetensors", "--table", "one.csv", "--level", "patient", "-o", "s.npz")
    _, err = panther(*by, code=2)
    assert "b0.h5" in err
    assert "a0.h5, a slide of the same sample" in err
    panther(*by, MIXED)


def test_artefacts_record_the_resolution_of_their_patches(lab, panther):
    panther("embed", "fine", "-p", "p.safetensors", "-o", "s.h5ad")
    assert load_prototypes("p.safetensors").spec == PatchSpec(0.5, 256)
    for model in ("panther", "abmil"):
        assert load_model(Path(model)).basis.spec == PatchSpec(0.5, 256)
    spec = anndata.read_h5ad("s.h5ad").uns["panther"]["patch_spec"]
    assert (spec["mpp"], spec["size"]) == (0.5, 256)


def test_one_encoder_under_two_names_is_one_and_files_without_a_resolution_pass(lab, panther):
    write_bags(lab / "ours", ["a0", "c1"], encoder="uni")
    panther("embed", "ours", "-p", "p.safetensors", "-o", "s.npz")
    write_bags(lab / "clam", ["a0", "c1"], None)
    panther("embed", "clam", "-p", "p.safetensors", "-o", "s.npz")
    pooled(lab / "both", 2, 0)
    write_bags(lab / "both", ["c0", "c1"], encoder="MahmoodLab/UNI")
    panther("prototypes", "both", "-C", 2, "-o", "q.safetensors")


@pytest.mark.parametrize(
    "command",
    [
        ("embed", "other", "-p", "p.safetensors", "-o", "s.npz"),
        ("predict", "abmil", "other", "-o", "out.csv"),
        ("map", "other", "-p", "p.safetensors", "-o", "maps", "--formats", "geojson"),
    ],
    ids=lambda command: command[0],
)
def test_another_encoder_is_refused_unless_the_user_names_it(lab, panther, command):
    write_bags(lab / "other", ["d0"], encoder="our_best_run")
    _, err = panther(*command, code=2)
    assert "our_best_run" in err
    assert "uni_v1" in err
    panther(*command, "--encoder-name", "uni")

"""No command writes over what it reads, by whatever name, and no folder of somebody else's is deleted."""

import os
from pathlib import Path

import pytest
import yaml

from hostile.judging import assert_honest, run_here
from hostile.lab import STUDY

FEATURES = {
    "prototypes": ("prototypes", "feats", "-C", 3, "-j", 1, "-o"),
    "embed": ("embed", "feats", "-p", "p.safetensors", "-j", 1, "-o"),
    "train": ("train", "feats", "--table", "table.csv", "--label", "subtype", "-C", 3, "-j", 1, "-o"),
    "predict": ("predict", "model", "feats", "--table", "table.csv", "-j", 1, "-o"),
    "choose-c": ("choose-c", "feats", "--range", "2:3", "-j", 1, "--plot"),
}
# command -> the inputs that it was given beside the features
OTHERS = {
    "embed": ("p.safetensors",),
    "train": ("table.csv",),
    "predict": ("model", "table.csv"),
}
ENDINGS = {"embed": ".npz", "choose-c": ".png"}


def content(folder: Path) -> dict[str, bytes]:
    """Everything that lies there."""
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def refused(lab: Path, *arguments: object) -> str:
    """Run the command, which must refuse and leave everything as it was."""
    before, done = content(lab), run_here(arguments, lab)
    assert done.code == 2, done.text
    assert "would be overwritten, but is an input" in done.err, done.text
    assert_honest(done)
    assert content(lab) == before
    return done.err


@pytest.mark.parametrize("how", ["itself", "another spelling", "symbolic link", "hard link"])
@pytest.mark.parametrize("command", FEATURES)
def test_a_feature_file_is_not_overwritten(lab, command, how):
    name = f"s03{ENDINGS.get(command, '.h5')}"
    if name != "s03.h5":  # the ending that the command insists on, for a bag all the same
        os.symlink("s03.h5", lab / "feats" / name) if how != "hard link" else os.link(lab / "feats/s03.h5", lab / "out")
    output = {
        "itself": f"feats/{name}",
        "another spelling": f"./feats/../feats/{name}",
        "symbolic link": f"link{ENDINGS.get(command, '')}",
        "hard link": f"twin{ENDINGS.get(command, '')}",
    }[how]
    if how == "symbolic link":
        (lab / output).symlink_to("feats/s03.h5")
    elif how == "hard link":
        os.link(lab / "feats" / "s03.h5", lab / output)
    refused(lab, *FEATURES[command], output)


@pytest.mark.parametrize(("command", "given"), [(c, g) for c, files in OTHERS.items() for g in files])
def test_a_table_prototypes_or_model_that_is_read_is_not_overwritten(lab, command, given):
    output = given
    if command in ENDINGS:
        output = f"out{ENDINGS[command]}"
        (lab / output).symlink_to(given)
    refused(lab, *FEATURES[command], output)


def test_a_result_among_the_features_may_be_written_again(lab):
    for _ in range(2):
        done = run_here(("prototypes", "feats", "-C", 3, "-j", 1, "-o", "feats/protos.safetensors"), lab)
        assert done.code == 0, done.text


def test_the_contours_that_a_map_is_drawn_with_are_kept(lab):
    (lab / "outlines").mkdir()
    square = [[0, 0], [1024, 0], [1024, 1024], [0, 1024], [0, 0]]
    feature = {"type": "Feature", "properties": {}, "geometry": {"type": "Polygon", "coordinates": [square]}}
    (lab / "outlines" / "s00.geojson").write_text(yaml.safe_dump({"type": "FeatureCollection", "features": [feature]}))
    arguments = ("map", "feats/s00.h5", "-p", "p.safetensors", "--contours", "outlines", "-o")
    refused(lab, *arguments, "outlines")


def test_a_clinical_table_beside_the_study_is_kept(lab):
    """`run -o .` writes a cohort.csv of its own."""
    (lab / "table.csv").rename(lab / "cohort.csv")
    (lab / "study.yaml").write_text(yaml.safe_dump({**STUDY, "table": "cohort.csv"}))
    assert "cohort.csv" in refused(lab, "run", "study.yaml", "-o", ".", "-j", 1)


def test_splits_do_not_replace_the_splits_they_are_made_of(lab):
    make = ("splits", "table.csv", "--scheme", "kfold", "-k", 2, "--label", "subtype", "-o", "splits", "--name", "a")
    assert run_here(make, lab).code == 0
    done = run_here(
        ("splits", "splits", "--scheme", "kfold", "-k", 2, "--label", "subtype", "-o", "splits", "--name", "a"), lab
    )
    assert done.code == 2, done.text
    assert "is an input" in done.err

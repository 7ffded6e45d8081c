"""`choose-c`, `prototypes -C auto`, `compare-prototypes`, `shift` and every method of `embed`, as a user runs them."""

from pathlib import Path

import pytest
from five_tissues import generate
from running import strict_json


@pytest.fixture(scope="module")
def cohort(tmp_path_factory) -> Path:
    """The demo's cohort: five tissues, two slides a patient."""
    folder = tmp_path_factory.mktemp("cohort")
    generate(folder / "features")
    return folder


@pytest.fixture
def prototypes(cohort, panther):
    path = cohort / "prototypes.safetensors"
    if not path.exists():
        auto = ("-C", "auto", "--range", "2:12", "--sample", 4000)
        out, err = panther("prototypes", cohort / "features", *auto, "-o", path, "-j", 1)
        assert out.startswith("5 prototypes")
        assert "C = 5: the largest number whose prototypes come back" in err
    return path


def test_compare_prototypes_reports_splits_in_text_json_and_a_picture(cohort, prototypes, panther, tmp_path):
    panther("prototypes", cohort / "features", "-C", 6, "--sample", 4000, "-o", tmp_path / "six.safetensors", "-j", 1)
    out, _ = panther("compare-prototypes", prototypes, tmp_path / "six.safetensors", "--plot", tmp_path / "m.svg")
    assert "5 of 5 pairs are the same" in out
    assert "split: A C" in out
    assert "<svg" in (tmp_path / "m.svg").read_text()
    found = strict_json(panther("compare-prototypes", prototypes, tmp_path / "six.safetensors", "--json")[0])
    assert len(found["split"]) == 1
    assert found["appeared"] == found["vanished"] == []


def test_shift_reads_sites_from_embeddings_and_compares_with_others(cohort, prototypes, panther, tmp_path):
    embeddings, table = tmp_path / "s.h5ad", cohort / "cohort.csv"
    panther("embed", cohort / "features", "-p", prototypes, "-o", embeddings, "--table", table, "-j", 1)
    of = ("shift", embeddings, "--site-column", "subtype", "--permutations", 199)
    values = strict_json(panther(*of, "--against", embeddings, "--json")[0])
    assert values["alarm"]  # the two "sites" differ in their tissue by construction
    assert sum(values["sites"].values()) == 12  # patients
    assert {"site", "label", "confounding"} <= set(values["embedding"]) == set(values["against"])
    out, _ = panther(*of, "--label", "subtype", "--against", embeddings)
    for text in ("separate the 2 sites", "The site nearly determines subtype", "of the same 12 patients"):
        assert text in out
    assert "no column 'grade'" in panther(*of, "--label", "grade", code=2)[1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("choose-c", "FEATURES", "--range", "8"), "found '8'"),
        (("choose-c", "FEATURES", "--range", "3:5", "--plot", "c.gif"), ".png"),
        (("prototypes", "FEATURES", "-C", "some", "-o", "p.safetensors"), "auto"),
        (("shift", "TABLE"), "not an embeddings file"),
        (
            ("embed", "FEATURES", "-p", "PROTOTYPES", "-o", "s.npz", "--method", "ot", "--set", "steps=2"),
            "no setting 'steps'",
        ),
    ],
)
def test_impossible_requests_are_refused_with_the_culprit(
    arguments, words, cohort, prototypes, panther, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    names = {"FEATURES": cohort / "features", "PROTOTYPES": prototypes, "TABLE": cohort / "cohort.csv"}
    _, err = panther(*(names.get(a, a) for a in arguments), code=2)
    assert words in err
    assert list(tmp_path.iterdir()) == []

"""`choose-c`, `prototypes -C auto`, `compare-prototypes`, `shift` and every method of `embed`, as a user runs them."""

import csv
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


def test_shift_reads_sites_from_embeddings(cohort, prototypes, panther, tmp_path):
    embeddings, table = tmp_path / "s.h5ad", cohort / "cohort.csv"
    panther("embed", cohort / "features", "-p", prototypes, "-o", embeddings, "--table", table, "-j", 1)
    found = strict_json(panther("shift", embeddings, "--site-column", "subtype", "--json")[0])
    assert found["alarm"]  # the two "sites" differ in their tissue by construction
    assert sum(found["sites"].values()) == 12  # patients
    out, _ = panther("shift", tmp_path / "s.h5ad", "--site-column", "subtype")
    assert "separate the 2 sites" in out


def test_sites_and_a_later_site_are_centred_and_shift_measures_the_effect(cohort, prototypes, panther, tmp_path):
    """The cohort's patients dealt out to three sites, of which the third is not in the training table."""
    rows = list(csv.DictReader((cohort / "cohort.csv").read_text().splitlines()))
    patients = sorted({row["case_id"] for row in rows})
    for name, sites in {"train.csv": "AB", "all.csv": "ABC"}.items():
        kept = [{**row, "hospital": "ABC"[patients.index(row["case_id"]) % 3]} for row in rows]
        with (tmp_path / name).open("w", newline="") as file:
            writer = csv.DictWriter(file, list(kept[0]))
            writer.writeheader()
            writer.writerows(row for row in kept if row["hospital"] in sites)
    features, fitted = cohort / "features", tmp_path / "p.safetensors"
    small = ("-C", 5, "--sample", 2000, "--passes", 1, "--restarts", 1, "-j", 1)
    out, _ = panther(
        "prototypes", features, *small, "--table", tmp_path / "train.csv", "--centre", "site", "-o", fitted
    )
    assert "A (8), B (" in out
    _, err = panther("embed", features, "-p", fitted, "-o", tmp_path / "no.h5ad", "-j", 1, code=1)
    assert err.count("is unknown") >= 5
    _, err = panther(
        "embed", features, "-p", fitted, "--table", tmp_path / "all.csv", "-o", tmp_path / "s.h5ad", "-j", 1
    )
    assert "Site C is not among the training sites" in err
    panther(
        "embed", features, "-p", prototypes, "--table", tmp_path / "all.csv", "-o", tmp_path / "plain.h5ad", "-j", 1
    )
    of = ("--site-column", "subtype", "--permutations", 19)
    found = strict_json(panther("shift", tmp_path / "s.h5ad", *of, "--against", tmp_path / "plain.h5ad", "--json")[0])
    assert {"site", "label", "confounding"} <= set(found["embedding"]) == set(found["against"])
    _, err = panther("shift", tmp_path / "s.h5ad", *of, "--label", "grade", code=2)
    assert "no column 'grade'" in err
    out, _ = panther("shift", tmp_path / "s.h5ad", *of, "--label", "subtype", "--against", tmp_path / "plain.h5ad")
    assert "The site nearly determines subtype" in out
    assert "of the same 12 patients" in out


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

"""`choose-c`, `prototypes -C auto`, `compare-prototypes`, `shift` and every method of `embed`, as a user runs them."""

import csv
from pathlib import Path

import numpy as np
import pytest
from five_tissues import generate
from running import Runner, strict_json

from panther.aggregators import aggregators


@pytest.fixture
def run(monkeypatch, capsys):
    return Runner(monkeypatch, capsys)


@pytest.fixture(scope="module")
def cohort(tmp_path_factory) -> Path:
    """The demo's cohort: five tissues, two slides a patient."""
    folder = tmp_path_factory.mktemp("cohort")
    generate(folder / "features")
    return folder


@pytest.fixture
def prototypes(cohort, run):
    path = cohort / "prototypes.safetensors"
    if not path.exists():
        run("prototypes", cohort / "features", "-C", "auto", "--range", "2:12", "--sample", 4000, "-o", path, "-j", 1)
    return path


@pytest.mark.slow
def test_auto_finds_the_five_tissues_and_says_why(cohort, run, tmp_path):
    out, err = run(
        "prototypes",
        cohort / "features",
        "-C",
        "auto",
        "--range",
        "2:12",
        "--sample",
        4000,
        "-o",
        tmp_path / "p.safetensors",
    )
    assert out.startswith("5 prototypes")
    assert "C = 5: the largest number whose prototypes come back" in err
    assert "What more buys: C = 12" in err


@pytest.mark.slow
def test_choose_c_prints_a_table_json_and_a_picture(cohort, run, tmp_path):
    out, _ = run("choose-c", cohort / "features", "--range", "3:8", "--sample", 3000, "--plot", tmp_path / "c.png")
    assert "->  5" in out
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    out, _ = run("choose-c", cohort / "features", "--range", "3:8", "--sample", 3000, "--json")
    assert strict_json(out)["recommended"] == 5


def test_compare_prototypes_tells_splits_in_words_json_and_a_picture(cohort, prototypes, run, tmp_path):
    run("prototypes", cohort / "features", "-C", 6, "--sample", 4000, "-o", tmp_path / "six.safetensors", "-j", 1)
    out, _ = run("compare-prototypes", prototypes, tmp_path / "six.safetensors", "--plot", tmp_path / "m.svg")
    assert "5 of 5 pairs are the same" in out
    assert "split: A C" in out
    assert "<svg" in (tmp_path / "m.svg").read_text()
    found = strict_json(run("compare-prototypes", prototypes, tmp_path / "six.safetensors", "--json")[0])
    assert len(found["split"]) == 1
    assert found["appeared"] == found["vanished"] == []


@pytest.mark.parametrize("method", aggregators.names())
def test_every_method_embeds_a_cohort(method, cohort, prototypes, run, tmp_path):
    import anndata

    run("embed", cohort / "features", "-p", prototypes, "-o", tmp_path / "s.h5ad", "--method", method, "-j", 1)
    table = anndata.read_h5ad(tmp_path / "s.h5ad")
    assert table.n_obs == 24
    assert np.isfinite(table.X).all()
    statistics = {"pi", "mu", "sigma", "count", "std", "max", "top"}
    assert set(table.var["statistic"].unique()) <= statistics


def test_shift_reads_sites_from_embeddings_of_either_format(cohort, prototypes, run, tmp_path):
    for name in ("s.h5ad", "s.npz"):
        run(
            "embed",
            cohort / "features",
            "-p",
            prototypes,
            "-o",
            tmp_path / name,
            "--table",
            cohort / "cohort.csv",
            "-j",
            1,
        )
        found = strict_json(run("shift", tmp_path / name, "--site-column", "subtype", "--json")[0])
        assert found["alarm"]  # the two "sites" differ in their tissue by construction
        assert sum(found["sites"].values()) == 12  # patients
    out, _ = run("shift", tmp_path / "s.h5ad", "--site-column", "subtype")
    assert "separate the 2 sites" in out


def test_sites_are_centred_also_a_later_one_and_shift_says_what_became_of_them(cohort, prototypes, run, tmp_path):
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
    out, _ = run("prototypes", features, *small, "--table", tmp_path / "train.csv", "--centre", "site", "-o", fitted)
    assert "A (8), B (" in out
    _, err = run("embed", features, "-p", fitted, "-o", tmp_path / "no.h5ad", "-j", 1, code=1)
    assert err.count("no table names a site") >= 5
    _, err = run("embed", features, "-p", fitted, "--table", tmp_path / "all.csv", "-o", tmp_path / "s.h5ad", "-j", 1)
    assert "Site C is not among the training sites" in err
    run("embed", features, "-p", prototypes, "--table", tmp_path / "all.csv", "-o", tmp_path / "plain.h5ad", "-j", 1)
    of = ("--site-column", "subtype", "--permutations", 19)
    found = strict_json(run("shift", tmp_path / "s.h5ad", *of, "--against", tmp_path / "plain.h5ad", "--json")[0])
    assert {"site", "label", "confounding"} <= set(found["embedding"]) == set(found["against"])
    _, err = run("shift", tmp_path / "s.h5ad", *of, "--label", "grade", code=2)
    assert "no column 'grade'" in err
    out, _ = run("shift", tmp_path / "s.h5ad", *of, "--label", "subtype", "--against", tmp_path / "plain.h5ad")
    assert "The site nearly determines subtype" in out
    assert "of the same 12 patients" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("choose-c", "FEATURES", "--range", "8"), "found '8'"),
        (("choose-c", "FEATURES", "--range", "3:5", "--plot", "c.gif"), ".png"),
        (("prototypes", "FEATURES", "-C", "some", "-o", "p.safetensors"), "auto"),
        (("compare-prototypes", "PROTOTYPES", "missing"), "missing"),
        (("shift", "nothing.h5ad"), "there is no such file"),
        (("shift", "TABLE"), "not an embeddings file"),
        (("embed", "FEATURES", "-p", "PROTOTYPES", "-o", "s.npz", "--method", "median"), "no method 'median'"),
        (
            ("embed", "FEATURES", "-p", "PROTOTYPES", "-o", "s.npz", "--method", "ot", "--set", "steps=2"),
            "no setting 'steps'",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(arguments, words, cohort, prototypes, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"FEATURES": cohort / "features", "PROTOTYPES": prototypes, "TABLE": cohort / "cohort.csv"}
    _, err = run(*(names.get(a, a) for a in arguments), code=2)
    assert words in err
    assert list(tmp_path.iterdir()) == []


def test_shift_without_the_column_names_those_there_are(cohort, prototypes, run, tmp_path):
    run("embed", cohort / "features", "-p", prototypes, "-o", tmp_path / "s.h5ad", "-j", 1)
    _, err = run("shift", tmp_path / "s.h5ad", "--site-column", "hospital", code=2)
    assert "n_patches" in err


def test_a_check_without_sites_says_that_they_are_not_known(run, tmp_path):
    rows = [f"S{i},P{i},{'ab'[i % 2]}" for i in range(8)]
    (tmp_path / "t.csv").write_text("\n".join(["slide_id,case_id,subtype", *rows]))
    run("splits", tmp_path / "t.csv", "--scheme", "kfold", "-k", 2, "--label", "subtype", "-o", tmp_path / "s")
    out, _ = run("splits", tmp_path / "s", "--label", "subtype")
    assert "No site is" not in out

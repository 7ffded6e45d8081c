"""Names that break naive programs: of files, columns, locales and outputs."""

import csv
import os
import shutil
import sys

import pandas as pd
import pytest

from hostile.judging import assert_honest, run_apart, run_here
from hostile.lab import ON_FEATURES, WITH_TABLE

ASCII = {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
linux = pytest.mark.skipif(sys.platform != "linux", reason="only here file names are bytes")


@linux
@pytest.mark.parametrize("command", ON_FEATURES)
def test_a_file_name_that_is_no_text_fails_alone(lab, command):
    shutil.copy(lab / "feats" / "s00.h5", os.path.join(os.fsencode(lab / "feats"), b"caf\xe9.h5"))
    done = run_here(ON_FEATURES[command], lab)
    assert done.code == 1, done.text
    assert_honest(done)
    assert "caf\\udce9" in done.text
    assert "not UTF-8" in done.text


@pytest.mark.parametrize(
    "command", [pytest.param(name, marks=() if name == "embed" else pytest.mark.slow) for name in WITH_TABLE]
)
def test_commands_work_in_an_ascii_locale(lab, command):
    """Slides, labels and tables with letters that ASCII does not have."""
    text = (lab / "table.csv").read_text(encoding="utf-8").replace(",a,", ",Grün,").replace("s00", "Süd")
    (lab / "table.csv").write_text(text, encoding="utf-8")
    (lab / "feats" / "s00.h5").rename(lab / "feats" / "Süd.h5")
    done = run_apart(WITH_TABLE[command], lab, env=ASCII)
    assert done.code == 0, done.text
    assert_honest(done)
    if command == "run":
        predictions = pd.read_csv(lab / "study" / "predictions.csv", encoding="utf-8")
        assert "probability_Grün" in predictions.columns or "Grün" in predictions.to_csv()


@pytest.mark.parametrize("columns", [("stage/grade", "stage_grade"), ("_index", "index")])
def test_columns_that_would_be_stored_as_one_are_found_before_the_work(lab, columns):
    table = pd.read_csv(lab / "table.csv", dtype=str)
    table[columns[0]], table[columns[1]] = "1", "2"
    table.to_csv(lab / "table.csv", index=False)
    command = ("embed", "feats", "-p", "p.safetensors", "--table", "table.csv", "-j", 1, "-o", "new.h5ad")
    done = run_here(command, lab)
    assert done.code == 2, done.text
    assert_honest(done)
    assert columns[0] in done.err
    assert columns[1] in done.err
    assert not (lab / "new.h5ad").exists()


@pytest.mark.parametrize("ending", [".csv", ".tsv"])
@pytest.mark.parametrize("command", WITH_TABLE)
def test_a_column_that_stands_twice_is_refused(lab, command, ending):
    with (lab / "table.csv").open(newline="") as handle:
        rows = list(csv.reader(handle))
    for number, row in enumerate(rows):
        row.append("subtype" if number == 0 else "ba"[number % 2])
    with (lab / f"twice{ending}").open("w", newline="") as handle:
        csv.writer(handle, delimiter="\t" if ending == ".tsv" else ",").writerows(rows)
    arguments = [f"twice{ending}" if a == "table.csv" else a for a in WITH_TABLE[command]]
    study = (lab / "study.yaml").read_text()
    (lab / "study.yaml").write_text(study.replace("table.csv", f"twice{ending}"))
    done = run_here(arguments, lab)
    assert done.code == 2, done.text
    assert_honest(done)
    assert "2 columns are called 'subtype'" in done.err

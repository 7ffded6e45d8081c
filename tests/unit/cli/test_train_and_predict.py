"""Train, then predict: one unit in both, columns of any name, and scores where the outcome is known."""

import csv
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from running import strict_json
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from hostile.judging import run_here
from panther.models.model import load_model, save_model
from study.generated import generate


@pytest.fixture(scope="module")
def cohort(tmp_path_factory):
    """Thirty patients, ten of them with two slides; two thirds are the training part."""
    folder = tmp_path_factory.mktemp("cohort")
    generate(folder, patients=30)
    table = pd.read_csv(folder / "table.csv", dtype=str)
    table["split"] = np.where(table["case_id"].str[1:].astype(int) % 3 == 1, "test", "train")
    table["weeks"], table["died"] = table["dss_survival_days"], (table["dss_censorship"] == "0").astype(int)
    table.to_csv(folder / "table.csv", index=False)
    table.drop(columns=["subtype", "split"]).to_csv(folder / "unlabelled.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def trained(cohort):
    more = ("--table", "table.csv", "--label", "subtype", "--split", "train", "-C", "4", "-j", "1")
    for level in ("patient", "slide"):
        done = run_here(("train", "features", "-o", f"{level}.model", "--level", level, *more), cohort)
        assert done.code == 0, done.text
    return cohort


def rows_of(path):
    with path.open() as handle:
        return list(csv.DictReader(handle))


@pytest.fixture
def here(trained, monkeypatch):
    monkeypatch.chdir(trained)
    return trained


def test_a_model_of_patients_predicts_patients_and_one_of_slides_slides(panther, here):
    for level, count in (("patient", 30), ("slide", 40)):
        out, _ = panther("predict", f"{level}.model", "features", "--table", "table.csv", "-o", "all.csv", "-j", 1)
        assert f"{count} predictions, one per {level}" in out
        assert len(rows_of(here / "all.csv")) == count


def test_without_a_table_slides_are_predicted_with_a_note(panther, here):
    out, err = panther("predict", "patient.model", "features", "-o", "new.csv", "-j", 1)
    assert "40 predictions, one per slide" in out
    assert "trained on patients" in err
    _, err = panther("predict", "patient.model", "features", "-o", "new.csv", "--level", "patient", code=2)
    assert "`--table`" in err


def test_a_table_with_the_outcome_scores_the_predictions(panther, here):
    given = ("--table", "table.csv", "--split", "test", "-o", "test.csv", "--metrics", "scores.json", "-j", 1)
    out, _ = panther("predict", "patient.model", "features", *given, "--json")
    result = strict_json(out)
    rows = rows_of(here / "test.csv")
    assert len(rows) == 10
    truth = [row["label"] for row in rows]
    scores = result["scores"]
    assert scores["patients"] == 10
    found = {name: about["value"] for name, about in scores["metrics"].items()}
    predicted = [row["predicted"] for row in rows]
    np.testing.assert_allclose(found["balanced_accuracy"], balanced_accuracy_score(truth, predicted))
    low = [float(row["probability_low"]) for row in rows]
    np.testing.assert_allclose(found["auroc"], roc_auc_score([t == "low" for t in truth], low))
    assert all(about["ci_low"] <= about["value"] <= about["ci_high"] for about in scores["metrics"].values())
    assert strict_json((here / "scores.json").read_text()) == scores
    assert not any("trained on, e.g." in note for note in result["notes"])


def test_scores_of_patients_that_were_trained_on_are_not_left_to_stand(panther, here):
    out, err = panther("predict", "patient.model", "features", "--table", "table.csv", "-o", "all.csv", "-j", 1)
    assert "Scored on 30 samples" in out
    assert "20 of the 30 scored samples were trained on" in err
    assert "--split test" in err


def test_a_split_with_a_shared_patient_is_refused_in_training_and_noted_in_scores(panther, here):
    table = pd.read_csv("table.csv", dtype=str)
    second = table[(table["split"] == "train") & table["case_id"].duplicated()].index[0]
    table.assign(split=table["split"].mask(table.index == second, "test")).to_csv("leak.csv", index=False)
    who = table.loc[second, "case_id"]
    learning = ("--table", "leak.csv", "--split", "train", "-C", 4, "-j", 1)
    for command in (
        ("train", "features", "-o", "x.model", "--label", "subtype"),
        ("prototypes", "features", "-o", "x.p"),
    ):
        _, err = panther(*command, *learning, code=2)
        assert f"{who} in train and test" in err
    _, err = panther(
        "predict", "patient.model", "features", "--table", "leak.csv", "--split", "test", "-o", "l.csv", "-j", 1
    )
    assert f"1 of the 11 scored samples were trained on, e.g. {who}" in err
    assert "train without them" in err
    assert "--split test" not in err


def test_a_table_without_the_outcome_gives_predictions_and_a_note(panther, here):
    out, err = panther("predict", "patient.model", "features", "--table", "unlabelled.csv", "-o", "u.csv", "-j", 1)
    assert "Scored" not in out
    assert "not scored" in err
    assert "subtype" in err
    assert "label" not in rows_of(here / "u.csv")[0]


@pytest.mark.parametrize(
    ("columns", "spoiled", "words"),
    [
        (("--label", "subtype"), {"subtype": "Low"}, "10 rows were not scored: another subtype (Low)"),
        (("--time", "weeks", "--event", "died"), {"weeks": "0"}, "10 rows were not scored: weeks = 0"),
        (("--labels", "died"), {"died": ""}, "10 rows were not scored: none of died"),
    ],
)
def test_rows_that_are_not_scored_are_reported_with_the_reason(panther, here, columns, spoiled, words):
    panther("train", "features", "--table", "table.csv", "-o", "any.model", "-C", 4, "-j", 1, *columns)
    rows = pd.read_csv("table.csv", dtype=str)
    rows.assign(**{name: [value] * 10 + list(rows[name])[10:] for name, value in spoiled.items()}).to_csv("spoiled.csv")
    _, err = panther("predict", "any.model", "features", "--table", "spoiled.csv", "-o", "any.csv", "-j", 1)
    assert words in err


def test_columns_of_any_name_can_be_trained_on_and_scored(panther, here):
    columns = ("--time", "weeks", "--event", "died")
    given = ("--table", "table.csv", "-j", 1)
    panther("train", "features", "-o", "risk.model", "--split", "train", "-C", 4, *columns, *given)
    out, _ = panther("predict", "risk.model", "features", "--split", "test", "-o", "risk.csv", *given)
    assert "c-index 0." in out
    assert "outcome from weeks and died (1 = event): event " in out
    sure = {"familiarity", "rare_patches", "sureness"}
    assert set(rows_of(here / "risk.csv")[0]) == {"sample", "risk", *sure, "time", "event"}
    renamed = pd.read_csv("table.csv", dtype=str).rename(columns={"weeks": "T", "died": "D"})
    renamed.to_csv("renamed.csv", index=False)
    again = ("predict", "risk.model", "features", "--split", "test", "-o", "r.csv", "--table", "renamed.csv", "-j", 1)
    assert "Scored" not in panther(*again)[0]
    assert "c-index 0." in panther(*again, "--time", "T", "--event", "D")[0]
    _, err = panther(*again, "--label", "subtype", code=2)
    assert "risks of survival" in err
    _, err = panther(*again, "--time", "nope", "--event", "D", code=2)
    assert "nope" in err


def test_a_model_is_recognised_by_inspect_and_where_prototypes_are_expected(panther, here):
    _, err = panther("embed", "features", "-p", "patient.model", "-o", "x.h5ad", code=2)
    assert "patient.model: holds a model of this package, not prototypes" in err
    (here / "m.safetensors").write_bytes((here / "patient.model").read_bytes())
    assert "model" in panther("inspect", "m.safetensors")[0].split()
    about = strict_json(panther("inspect", "table.csv", "--json")[0])["files"]["table.csv"]
    assert (about["kind"], about["slides"], about["patients"]) == ("table of slides", 40, 30)


def test_a_model_file_with_an_invalid_task_is_named(panther, here):
    model = load_model(here / "patient.model")
    save_model(replace(model, about={**model.about, "task": {"level": 3}}), here / "odd.model")
    _, err = panther("predict", "odd.model", "features", "-o", "odd.csv", code=2)
    assert "odd.model" in err
    assert "task" in err

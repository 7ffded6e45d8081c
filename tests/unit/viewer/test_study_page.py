"""Routes of the study page, on small real studies with hostile names."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest

from panther.viewer.contents import Inputs, find_contents
from report.studies import EVIL, run
from study.generated import generate
from viewer.asking import entered
from viewer.small_study import QUICK


@pytest.fixture(scope="module")
def survival(tmp_path_factory):
    folder = tmp_path_factory.mktemp("survival")
    generate(folder, patients=24, patches=16)
    return run(folder, task={"survival": "dss"}, **QUICK)


def test_results_are_those_of_the_summary(class_study):
    found = entered(class_study.parent).get("/api/study").get_json()
    summary = pd.read_parquet(class_study / "summary.parquet")
    truth = summary[(summary["part"] == "test") & (summary["metric"] == "balanced_accuracy")]
    assert found["study"] == "run"
    assert [row["row"] for row in found["rows"]] == ["PANTHER + probe", "DeepSets + probe"]
    for name, column in {"": "mean", "_low": "ci_low", "_high": "ci_high", "_std": "std"}.items():
        values = [row[f"balanced_accuracy{name}"] for row in found["rows"]]
        np.testing.assert_allclose(values, truth[column], rtol=1e-5)
    assert {one["id"] for one in found["parts"]} == {"test", "test_lab"}
    names = found["figure"]["layout"]["yaxis"]["ticktext"]
    assert names == [row["row"] for row in found["rows"]]


def test_patients_are_counted_once_in_each_test(class_study):
    """Two seeds and three folds: 24 patients in the folds, 12 others in another cohort, and nowhere 36."""
    about = entered(class_study.parent).get("/api/study").get_json()["about"]
    assert "tested: test folds 24 patients; lab (external) 12 patients · 3 folds · 2 methods" in about


def test_patients_have_the_prediction_of_each_method(class_study):
    found = entered(class_study.parent).get("/api/study/patients").get_json()
    table = pd.read_parquet(class_study / "predictions.parquet")
    own = table[(table["part"] == "test") & (table["method"] == "panther")]
    means = own.groupby("sample")[[name for name in own if name.startswith("probability_")]].mean()  # over two seeds
    truth = own.groupby("sample")["label"].first()
    assert {one["truth"] for one in found["patients"]} == {EVIL, "low"}
    assert len(found["patients"]) == 24
    for one in found["patients"]:
        mean = means.loc[one["sample"]]
        assert one["truth"] == truth[one["sample"]]
        assert one["probability"][0] == pytest.approx(mean[f"probability_{one['truth']}"], rel=1e-5)
        assert one["predicted"][0] == mean.idxmax().removeprefix("probability_")
        assert one["right"] == sum(name == one["truth"] for name in one["predicted"])
        number = int(one["patient"][1:])
        assert one["slides"] == [f"P{number:03d}-{s}" for s in range(2 if number % 3 == 0 else 1)]
    assert found["notes"] == []


def test_patients_of_another_cohort_are_judged_though_their_slides_are_not_here(class_study):
    client = entered(class_study.parent)
    found = client.get("/api/study/patients?part=test_lab").get_json()
    assert len(found["patients"]) == 12
    assert not any(one["slides"] for one in found["patients"])
    assert "12 of 12" in found["notes"][0]
    assert client.get("/api/study?part=test_lab").get_json()["parts"][1]["title"] == "lab (external)"


def test_survival_has_ranks_and_pairs(survival):
    client = entered(survival.parent)
    found = client.get("/api/study/patients").get_json()
    assert found["kind"] == "survival"
    assert "comparable pairs" in found["how"]
    table = pd.read_parquet(survival / "predictions.parquet")
    own = table[(table["part"] == "test") & (table["method"] == "panther")]
    by_name = {one["sample"]: one for one in found["patients"]}
    for _, fold in own.groupby("fold"):
        ranks = [by_name[sample]["risk"][0] for sample in fold.sort_values("risk")["sample"]]
        np.testing.assert_allclose(ranks, np.linspace(0, 1, len(fold)), atol=1e-5)


@pytest.mark.parametrize("task", [{"value": "age"}, {"labels": ["a", "b"]}])
def test_numbers_and_labels_have_their_lists(tmp_path, task):
    generate(tmp_path, patients=24, patches=16)
    table = pd.read_csv(tmp_path / "table.csv", dtype=str)
    number = table["case_id"].str[1:].astype(int)
    table.assign(age=40 + number % 17, a=number % 2, b=number % 3 == 0).to_csv(tmp_path / "table.csv", index=False)
    run(tmp_path, task=task, **QUICK)
    found = entered(tmp_path).get("/api/study/patients").get_json()["patients"]
    assert len(found) == 24
    for one in found:
        if "value" in task:
            assert one["error"] == pytest.approx([abs(number - one["truth"]) for number in one["predicted"]])
            assert one["all"] == pytest.approx(np.mean(one["error"]))
        else:
            assert one["right"] == sum(text == one["truth"] for text in one["predicted"])


def test_unknown_studies_tests_and_metrics_are_not_found(survival, client):
    study = entered(survival.parent)
    for query in (
        "study?study=..",
        "study?study=/etc",
        "study?part=x",
        "study?metric=../x",
        "study/patients?study=%00",
    ):
        answer = study.get(f"/api/{query}")
        assert (answer.status_code, answer.mimetype) == (404, "application/json"), query
    without_study = client.get("/api/study")
    assert without_study.status_code == 404
    assert "`panther run`" in without_study.get_json()["error"]


@pytest.mark.parametrize(
    ("damage", "culprit"),
    [
        (lambda run: (run / "run.json").write_text(json.dumps({"format": 99, "version": "9.9"})), "run.json"),
        (lambda run: (run / "run.json").write_text("{"), "run.json"),
        (lambda run: (run / "summary.parquet").write_bytes(b"PAR1"), "summary.parquet"),
        (lambda run: (run / "predictions.parquet").unlink(), "predictions.parquet"),
        (lambda run: [(run / name).unlink() for name in ("run.json", "study.json")], "study.json"),
        (lambda run: (run / "summary.parquet").symlink_to((run / "summary.parquet").rename(run.parents[1] / "away")), "link out of"),
    ],
    ids=["newer", "damaged", "half-written", "missing", "unfinished", "linked"],
)  # fmt: skip
def test_a_study_that_cannot_be_read_is_an_error_with_its_file(survival, tmp_path, damage, culprit):
    folder = shutil.copytree(survival.parent, tmp_path / "copy")
    shutil.rmtree(folder / "run" / "cache")  # results do without
    client = entered(find_contents(folder, Inputs(study=folder / "run")))
    assert client.get("/api/study/patients").status_code == client.get("/api/study").status_code == 200
    damage(folder / "run")  # files that change meanwhile are read again
    for address in ("/api/study", "/api/study/patients"):
        answer = client.get(address)
        assert answer.status_code == 422
        assert culprit in answer.get_json()["error"]

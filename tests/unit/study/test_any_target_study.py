"""Studies of numbers, several labels and ordered grades, from the table to the report, the viewer and new predictions."""

import json

import numpy as np
import pandas as pd
import pytest

import panther
from cli.running import Runner
from panther.models.model import load_model
from panther.verbs.study import make_report
from panther.viewer.contents import Inputs, find_contents
from panther.viewer.guard import Guard
from panther.viewer.server import make_app
from panther.viewer.workbench import Workbench
from report.studies import run
from study.generated import generate

QUICK = {"methods": ["panther", "deepsets"], "heads": ["probe"], "bootstrap": 20, "splits": {"scheme": "kfold", "k": 3}}
TASKS = {
    "regression": {"task": {"value": "tumour"}, "evaluate_by": ["provider", "dss_survival_days"]},
    "labels": {"methods": ["panther"], "task": {"labels": ["gene", "other"]}},
    "grades": {
        "methods": ["panther"],
        "task": {"label": "grade"},
        "losses": ["cross-entropy", "ordinal"],
        "metrics": ["quadratic_kappa"],
    },
}


def cohort(folder):
    """A cohort whose tumour share is known; one gene follows it and is not known of everybody."""
    generate(folder, patients=36, patches=24)
    table = pd.read_csv(folder / "table.csv")
    share = {}
    for name in table["slide_id"]:
        x = np.load(folder / "features" / f"{name}.npy")
        share[name] = x[:, 0].mean()
    amount = table.assign(share=table["slide_id"].map(share)).groupby("case_id")["share"].transform("mean")
    table["tumour"] = (100 + 50 * amount).round(3)
    table["grade"] = pd.qcut(amount, 3, labels=["1", "2", "3"])
    number = table["case_id"].str[1:].astype(int)
    table["gene"] = np.where(number % 5 == 0, "", (amount > amount.median()).astype(int).astype(str))
    table["other"] = np.where(number % 2 == 0, "yes", "no")
    table.to_csv(folder / "table.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def studies(tmp_path_factory):
    folder = cohort(tmp_path_factory.mktemp("targets"))
    data = {"table": str(folder / "table.csv"), "features": {"npy": str(folder / "features")}}
    made = {name: tmp_path_factory.mktemp(name) for name in TASKS}
    return {name: (folder, run(made[name], name=name, **data, **(QUICK | what))) for name, what in TASKS.items()}


def best(result, metric):
    summary = pd.read_parquet(result / "summary.parquet")
    return summary[(summary["metric"] == metric) & (summary["subgroup"] == "")]["mean"].max()


def test_planted_numbers_and_labels_are_predicted(studies):
    _, result = studies["regression"]
    assert best(result, "pearson") > 0.9
    table = pd.read_csv(result / "predictions.csv")
    own = table[(table["method"] == "deepsets") & (table["fold"] == 0)]
    metrics = pd.read_csv(result / "metrics.csv")
    said = metrics[(metrics["method"] == "deepsets") & (metrics["fold"] == 0) & (metrics["part"] == "test")]
    said = said[said["subgroup"].isna()].set_index("metric")["value"]
    assert said["mae"] == pytest.approx(np.abs(own["value"] - own["predicted"]).mean())
    _, result = studies["labels"]
    assert best(result, "auroc_gene") > 0.9
    assert best(result, "auroc_other") < 0.8
    labels = pd.read_csv(result / "predictions.csv")
    assert {"label_other", "probability_gene"} < set(labels.columns)
    assert labels["label_gene"].isna().any()
    assert said["rmse"] == pytest.approx(np.sqrt(((own["value"] - own["predicted"]) ** 2).mean()))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("regression", ["Prediction of tumour", "lowest quarter"]),
        ("labels", ["Prediction of 2 labels", "ROC of each label", "not known"]),
        ("grades", ["confusion", "quadratic-weighted kappa"]),
    ],
)
def test_the_report_has_the_figures_of_the_task(studies, name, words, tmp_path):
    _, result = studies[name]
    page = make_report(result, output=tmp_path / "report.html") and (tmp_path / "report.html").read_text()
    assert all(word in page for word in words)


@pytest.mark.parametrize(("name", "kind"), [("regression", "values"), ("labels", "classes"), ("grades", "classes")])
def test_the_viewer_shows_predictions_and_errors(studies, name, kind):
    folder, result = studies[name]
    guard = Guard()
    client = make_app(Workbench(find_contents(folder, Inputs(study=result))), guard).test_client()
    client.get(f"/?token={guard.token}")
    assert client.get("/api/study").status_code == 200
    people = client.get("/api/study/patients").get_json()
    assert people["kind"] == kind
    assert len(people["patients"]) == 36
    predictions = pd.read_csv(result / "predictions.csv")
    one = people["patients"][0]
    own = predictions[(predictions["sample"] == one["sample"]) & (predictions["method"] == "panther")].iloc[0]
    if kind == "values":
        assert one["predicted"][0] == pytest.approx(own["predicted"])
        assert one["error"][0] == pytest.approx(abs(own["value"] - own["predicted"]))
    assert client.get("/api/study/risks").status_code == 404


def test_a_model_of_each_kind_comes_back_from_its_file_and_is_scored(studies, tmp_path):
    folder, _ = studies["regression"]
    for task, metric in (({"value": "tumour"}, "pearson"), ({"labels": ["gene", "other"]}, "macro_auroc")):
        model = panther.train(
            folder / "features", folder / "table.csv", n_prototypes=4, **task, output=tmp_path / "m.safetensors"
        )
        again = load_model(tmp_path / "m.safetensors")
        assert again.task == model.task
        first, second = (panther.predict(m, folder / "features", folder / "table.csv").table for m in (model, again))
        pd.testing.assert_frame_equal(first, second)
        assert metric in again.task.judged


def test_predict_scores_values_and_refuses_another_kind_of_outcome(studies, tmp_path, monkeypatch, capsys):
    command = Runner(monkeypatch, capsys)
    folder, _ = studies["regression"]
    model, out = tmp_path / "m.safetensors", tmp_path / "p.csv"
    command("train", folder / "features", "--table", folder / "table.csv", "--value", "tumour", "-C", 4, "-o", model)
    said = command("predict", model, folder / "features", "--table", folder / "table.csv", "-o", out, "--json")
    scores = json.loads(said[0])["scores"]["metrics"]
    assert scores["pearson"]["value"] > 0.9
    assert scores["mae"]["ci_low"] > 0
    given = (model, folder / "features", "--table", folder / "table.csv", "-o", out)
    _, refused = command("predict", *given, "--labels", "gene,other", code=2)
    assert "predicts values" in refused

"""Studies of numbers, several labels and ordered grades, from the table to the report, the viewer and new predictions."""

import numpy as np
import pandas as pd
import pytest

import panther
from panther.models.model import load_model
from panther.verbs.study import make_report
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
    selected = table[(table["method"] == "deepsets") & (table["fold"] == 0)]
    metrics = pd.read_csv(result / "metrics.csv")
    message = metrics[(metrics["method"] == "deepsets") & (metrics["fold"] == 0) & (metrics["part"] == "test")]
    message = message[message["subgroup"].isna()].set_index("metric")["value"]
    assert message["mae"] == pytest.approx(np.abs(selected["value"] - selected["predicted"]).mean())
    _, result = studies["labels"]
    assert best(result, "auroc_gene") > 0.9
    assert best(result, "auroc_other") < 0.8
    labels = pd.read_csv(result / "predictions.csv")
    assert {"label_other", "probability_gene"} < set(labels.columns)
    assert labels["label_gene"].isna().any()
    assert message["rmse"] == pytest.approx(np.sqrt(((selected["value"] - selected["predicted"]) ** 2).mean()))


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
        scores = panther.predict(again, folder / "features", folder / "table.csv").scores.metrics
        assert scores[metric].value > 0.6

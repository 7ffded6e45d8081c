"""`permuted: true`: the reference row once more, on labels that were exchanged between patients."""

import numpy as np
import pandas as pd
import pytest

import panther
from panther.verbs.study import make_report


@pytest.fixture(scope="module")
def cohort() -> tuple[dict[str, np.ndarray], pd.DataFrame]:
    rng = np.random.default_rng(0)
    slides = [(f"P{i:02d}", f"P{i:02d}-{j}") for i in range(60) for j in range(1 + i % 2)]
    bags = {slide: rng.normal(2 * (int(patient[1:]) < 30), 1, (10, 4)).astype("f4") for patient, slide in slides}
    label = ["low" if int(patient[1:]) < 30 else "high" for patient, _ in slides]
    return bags, pd.DataFrame({"slide_id": list(bags), "case_id": [p for p, _ in slides], "label": label})


def run(cohort, output=None, **changes):
    bags, table = cohort
    study = {
        "name": "x",
        "table": table,
        "features": bags,
        "task": {"label": "label", "level": "slide"},
        "methods": ["mean", "max"],
    }
    study |= {"heads": ["probe"], "splits": {"k": 3}, "bootstrap": 50, "metrics": ["auroc"], "permuted": True}
    return panther.run_study({**study, **changes}, output)


def test_nothing_is_learnt_from_permuted_labels_and_other_rows_stay(cohort, tmp_path):
    done = run(cohort, tmp_path)
    score = done.summary.query("metric == 'auroc'").set_index("method")["mean"]
    assert score["mean"] > 0.95
    assert 0.2 < score["mean, labels permuted"] < 0.8
    assert "mean, labels permuted" in (tmp_path / "table.md").read_text()
    assert set(done.comparisons["method"]) == {"max"}
    without = run(cohort, permuted=False)
    kept = done.summary[done.summary["method"] != "mean, labels permuted"].reset_index(drop=True)
    pd.testing.assert_frame_equal(kept, without.summary)
    make_report(tmp_path, output=tmp_path / "report.html")
    assert "labels permuted" in (tmp_path / "report.html").read_text()


def test_slides_of_a_patient_stay_together_and_labels_are_as_many(cohort):
    done = run(cohort)
    predictions = done.predictions.query("part == 'test' and method == 'mean, labels permuted'")
    assert (predictions.groupby("patient")["label"].nunique() == 1).all()
    patients = predictions.drop_duplicates("patient")
    assert patients["label"].value_counts().to_dict() == {"high": 30, "low": 30}
    true = np.where(patients["patient"].str[1:].astype(int) < 30, "low", "high")
    assert 0.3 < (patients["label"] == true).mean() < 0.7

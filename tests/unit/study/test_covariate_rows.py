"""Covariates in a study: rows of their own and beside embeddings, what slides add to them, and what is wrong with a column."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import panther
from panther.cohort.covariates import COVARIATES
from panther.errors import InputError
from panther.models.model import save_model
from panther.study.results import Results

BOTH = f"mean + {COVARIATES}"


def cohort(n: int = 80, slide: float = 2.0, seed: int = 0) -> tuple[dict[str, np.ndarray], pd.DataFrame]:
    """Slides whose mean shifts with a hidden number, patients with an age and a stage; both raise the hazard."""
    rng = np.random.default_rng(seed)
    hidden, age = rng.normal(size=n), rng.normal(60, 10, n)
    stage = rng.choice(["I", "II", "III"], n)
    bags = {f"P{i:03d}": rng.normal(hidden[i], 1, (12, 4)).astype("f4") for i in range(n)}
    risk = slide * hidden + (age - 60) / 10 + (stage == "III")
    time = rng.exponential(np.exp(-risk)) + 0.01
    table = pd.DataFrame(
        {
            "slide_id": list(bags),
            "case_id": list(bags),
            "label": np.where(risk + rng.normal(size=n) > 0.3, "high", "low"),
            "time": time.round(6),
            "event": (rng.random(n) < 0.8).astype(int),
            "age": age.round(1),
            "stage": stage,
        }
    )
    table.loc[3, "age"] = np.nan
    return bags, table


def study(bags: Any, table: pd.DataFrame, **changes: Any) -> dict[str, Any]:
    content = {"name": "clinic", "table": table, "features": bags, "task": {"label": "label"}, "methods": ["mean"]}
    content |= {"heads": ["probe"], "splits": {"k": 3}, "bootstrap": 100, "covariates": ["age", "stage"]}
    return {**content, **changes}


@pytest.fixture(scope="module")
def results() -> Results:
    bags, table = cohort()
    return panther.run_study(study(bags, table, task={"time": "time", "event": "event"}))


def test_the_gain_of_the_slide_has_an_interval(results: Results) -> None:
    gain = results.gains.query("metric == 'c_index' and part == 'test'").iloc[0]
    assert gain["method"] == BOTH
    assert gain["difference"] == pytest.approx(gain["with_slide"] - gain["covariates"])
    assert gain["ci_low"] > 0
    summary = results.summary.query("metric == 'c_index'").set_index("method")["mean"]
    assert gain["covariates"] == pytest.approx(summary[COVARIATES])
    assert gain["with_slide"] == pytest.approx(summary[BOTH])


def test_a_slide_that_knows_only_the_square_of_a_covariate_adds_nothing_to_its_spline() -> None:
    rng = np.random.default_rng(0)
    age = rng.normal(size=200)
    bags = {f"P{i:03d}": rng.normal(age[i] ** 2, 0.3, (12, 4)).astype("f4") for i in range(200)}
    label = np.where(rng.random(200) < 1 / (1 + np.exp(3 - 3 * age**2)), "high", "low")
    table = pd.DataFrame(
        {"slide_id": list(bags), "case_id": list(bags), "label": label, "age": (60 + 10 * age).round(1)}
    )
    done = panther.run_study(study(bags, table, covariates=["age"], metrics=["auroc"]))
    gain = done.gains.query("metric == 'auroc'").iloc[0]
    assert gain["baseline"] == "spline"
    assert gain["ci_low"] < 0 < gain["ci_high"]
    assert any("age as a restricted cubic spline" in note for note in done.run.population.notes)
    few = done.run.population.table.head(90).reset_index(drop=True)[["slide_id", "case_id", "label", "age"]]
    linear = panther.run_study(
        study({name: bags[name] for name in few["slide_id"]}, few, covariates=["age"], metrics=["auroc"])
    )
    assert set(linear.gains["baseline"]) == {"linear"}


def test_gains_are_written_and_removed_with_the_covariates(results: Results, tmp_path: Path) -> None:
    results.write(tmp_path / "out")
    again = pd.read_csv(tmp_path / "out" / "gains.csv")
    assert set(again["metric"]) == {"c_index", "c_index_uno"}
    bags, table = cohort(30)
    assert panther.run_study(study(bags, table, covariates=[]), tmp_path / "out").gains.empty
    assert not (tmp_path / "out" / "gains.csv").exists()  # of the earlier study


@pytest.mark.parametrize(
    ("covariates", "message"),
    [
        (["wieght"], "no covariate column 'wieght'"),
        (["age", "age"], "covariates: "),
        (["case_id"], "different values"),
        ([{"column": "age", "kind": "colour"}], "covariates"),
    ],
)
def test_wrong_covariates_are_refused(covariates: list[Any], message: str) -> None:
    bags, table = cohort(30)
    with pytest.raises(InputError, match=message):
        panther.run_study(study(bags, table, covariates=covariates))


def test_a_covariate_that_differs_between_slides_of_a_patient_is_refused() -> None:
    bags, table = cohort(30)
    table["case_id"] = [f"C{i // 2}" for i in range(30)]
    table["label"] = ["high" if i // 2 % 2 else "low" for i in range(30)]
    with pytest.raises(InputError, match="age differs between slides of one patient"):
        panther.run_study(study(bags, table))


@pytest.mark.slow
def test_the_interval_of_a_gain_of_nothing_covers_zero(tmp_path: Path) -> None:
    """Over 40 cohorts in which the slide is noise, the interval of the gain covers 0 in nearly all."""
    covered = []
    for seed in range(40):
        bags, table = cohort(90, slide=0.0, seed=seed)
        gains = panther.run_study(study(bags, table, bootstrap=300)).gains
        row = gains.query("metric == 'auroc' and part == 'test'").iloc[0]
        covered.append(row["ci_low"] <= 0 <= row["ci_high"])
    assert np.mean(covered) >= 0.9


@pytest.fixture(scope="module")
def trained() -> tuple[dict[str, np.ndarray], pd.DataFrame, Any]:
    bags, table = cohort(40)
    return bags, table, panther.train(bags, table, label="label", method="mean", covariates=["age", "stage"])


def test_a_trained_model_reads_covariates_of_new_patients(
    trained: tuple[Any, pd.DataFrame, Any], tmp_path: Path
) -> None:
    bags, table, model = trained
    assert model.method.title == BOTH
    older = table.assign(age=table["age"].fillna(60) + 20)
    high = [panther.predict(model, bags, one).table["probability_high"].to_numpy() for one in (table, older)]
    assert (high[1] > high[0]).mean() > 0.9  # age raises the risk
    save_model(model, tmp_path / "model.safetensors")
    again = panther.predict(tmp_path / "model.safetensors", bags, table).table["probability_high"]
    np.testing.assert_allclose(again, high[0], rtol=1e-6)


def test_a_model_with_covariates_requires_them(trained: tuple[Any, pd.DataFrame, Any]) -> None:
    bags, table, model = trained
    with pytest.raises(InputError, match=r"reads covariates \(age, stage\); give"):
        panther.predict(model, bags)
    with pytest.raises(InputError, match="no covariate"):
        panther.predict(model, bags, table.drop(columns="age"))
    with pytest.raises(InputError, match="abmil is a network"):
        panther.train(bags, table, label="label", method="abmil", covariates=["age"])


def test_models_of_a_study_predict_what_they_predicted_there(results: Results) -> None:
    bags, table = cohort()
    message = results.predictions.query("fold == 0")
    for method in (COVARIATES, BOTH):
        risks = message[message["method"] == method].set_index("sample")["risk"]
        result = panther.predict(results.model(fold=0, method=method), bags, table).table.set_index("sample")["risk"]
        np.testing.assert_allclose(result[risks.index], risks, rtol=1e-4, atol=1e-5)

"""Studies end to end on generated cohorts: signal result, chance when shuffled, no leakage, results of the cache."""

from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from panther.errors import InputError
from panther.models.predict import predict_bags
from panther.study.jobs import load_predictions
from panther.study.tables import latex, markdown
from panther.study.training import train_all
from panther.verbs.study import run_study
from study import generated
from study.generated import generate

QUICK = {
    "splits": {"k": 3},
    "methods": ["protocounts"],
    "n_prototypes": [4],
    "prototypes": {"restarts": 2, "passes": 1},
}
study_in = partial(generated.study_in, **QUICK)


def results_of(folder: Path, **changes):
    return run_study(study_in(folder, **changes), folder / "out")


def value(results, metric, part="test", **where):
    rows = results.summary[(results.summary["metric"] == metric) & (results.summary["part"] == part)]
    for name, wanted in where.items():
        rows = rows[rows[name] == wanted]
    (row,) = rows.to_dict("records")
    return row["mean"]


@pytest.fixture(scope="module")
def cohort(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cohort")
    generate(folder)
    return folder


def planted_scores(folder, seed, shuffled=False):
    """Scores of a study of each kind on a generated cohort whose labels the tissue tells, or not."""
    generate(folder, seed=seed, shuffled=shuffled)
    return {
        "balanced_accuracy": value(results_of(folder), "balanced_accuracy"),
        "c_index": value(results_of(folder, task={"survival": "dss"}), "c_index"),
    }


def test_a_planted_signal_is_recovered(tmp_path):
    result = planted_scores(tmp_path, seed=0)
    assert result["balanced_accuracy"] > 0.8
    assert result["c_index"] > 0.62


@pytest.mark.slow
def test_a_planted_signal_is_recovered_and_shuffled_labels_fall_to_chance(tmp_path):
    result = {}
    for shuffled in (False, True):
        scores = [planted_scores(tmp_path / f"{shuffled}-{seed}", seed, shuffled) for seed in range(3)]
        result[shuffled] = {name: float(np.mean([one[name] for one in scores])) for name in scores[0]}
    assert result[False]["balanced_accuracy"] > 0.8
    assert result[False]["c_index"] > 0.62
    assert abs(result[True]["balanced_accuracy"] - 0.5) < 0.12
    assert abs(result[True]["c_index"] - 0.5) < 0.1


def test_changing_test_patients_changes_nothing_upstream(tmp_path):
    for name in "ab":
        generate(tmp_path / name)
    study = study_in(tmp_path / "a", heads=["linear"], training={"epochs": 3})
    first = train_all(study, tmp_path / "a/out")
    tested = set(first.population.splits[0].test["test"])
    for path in (tmp_path / "b/features").glob("*.npy"):
        if path.stem[:4] in tested:
            np.save(path, np.load(path) + 5.0)
    second = train_all(study_in(tmp_path / "b", heads=["linear"], training={"epochs": 3}), tmp_path / "b/out")
    prototypes = [{p.name for p in (tmp_path / n / "out/cache").glob("prototypes-*")} for n in "ab"]
    assert len(prototypes[0] & prototypes[1]) == 1  # the fold whose training part does not hold the changed patients
    (shared,) = prototypes[0] & prototypes[1]
    assert (tmp_path / "a/out/cache" / shared).read_bytes() == (tmp_path / "b/out/cache" / shared).read_bytes()
    one, other = (load_predictions(next(t.predictions for t in o.trained if t.fold == 0)) for o in (first, second))
    assert one[0] == other[0]  # task and learning curve
    np.testing.assert_array_equal(one[1]["train"]["probabilities"], other[1]["train"]["probabilities"])
    assert not np.array_equal(one[1]["test"]["probabilities"], other[1]["test"]["probabilities"])


def test_all_kinds_of_methods_heads_and_parts_come_to_one_table(cohort, tmp_path):
    external = tmp_path / "elsewhere"
    generate(external, patients=20, seed=9)
    for path in list((external / "features").glob("*.npy")):
        path.rename(path.with_name(f"X{path.name}"))
    text = (external / "table.csv").read_text()
    (external / "table.csv").write_text(text.replace("P0", "XP0"))
    results = results_of(
        cohort,
        methods=["panther", "deepsets", {"name": "abmil", "hidden": 16, "attention": 8}],
        heads=["linear", "paper-classification", "probe"],
        training={"epochs": 2},
        mil_training={"epochs": 1},
        evaluate_by="provider",
        external={"elsewhere": {"table": str(external / "table.csv"), "features": {"npy": str(external / "features")}}},
        seeds=[1, 2],
    )
    metrics = results.metrics
    assert set(metrics["part"]) == {"train", "test", "test_elsewhere"}
    assert set(metrics["subgroup"]) == {"", "east", "west"}
    cells = metrics[["method", "head"]].drop_duplicates()
    assert len(cells) == 3 + 2 + 1  # deepsets has nothing to be structured by, abmil brings its own head
    folds = metrics[(metrics["part"] == "test_elsewhere") & (metrics["subgroup"] == "")]
    assert (folds.groupby(["method", "head", "seed", "metric"])["fold"].nunique() == 3).all()
    selected = results.predictions[results.predictions["part"] == "test"]
    assert (selected.groupby(["method", "head", "seed"])["sample"].nunique() == 60).all()  # everybody is tested once
    np.testing.assert_allclose(selected[["probability_high", "probability_low"]].sum(axis=1), 1)
    interval = results.summary[results.summary["metric"] == "balanced_accuracy"]
    assert (interval["ci_low"] <= interval["mean"] + 1e-9).all()
    assert (interval["ci_high"] >= interval["mean"] - 1e-9).all()
    heads = ("linear", "paper-classification", "probe")
    assert set(results.comparisons["reference"]) <= {f"panther + {head}" for head in heads}
    assert results.comparisons["p_value"].between(0, 1).all()
    written = results.write(tmp_path / "tables")
    assert pd.read_parquet(tmp_path / "tables/metrics.parquet").shape == metrics.shape
    assert {p.suffix for p in written} == {".csv", ".parquet", ".md", ".tex", ".json"}
    assert "elsewhere, Bal. acc." in markdown(results.summary, ["balanced_accuracy"])
    assert latex(results.summary, ["balanced_accuracy"]).count(r"\\") == 7


def test_a_second_run_computes_nothing_and_a_changed_setting_only_what_it_touches(cohort):
    study = study_in(cohort)
    train_all(study, cohort / "cached")

    def files() -> dict[str, int]:
        """Hashes are kept as soon as the features are old enough to be trusted, which may be in the second run."""
        kept = (cohort / "cached/cache").glob("*-*")
        return {path.name: path.stat().st_mtime_ns for path in kept}

    before = files()
    train_all(study, cohort / "cached")
    assert files() == before
    train_all(study_in(cohort, scaling="none"), cohort / "cached")
    new = set(files()) - set(before)
    assert {name.split("-")[0] for name in new} == {"model"}


def test_a_smaller_training_part_keeps_the_proportions_and_the_test_part(cohort):
    study = study_in(cohort, train_sizes=[0.5, 1.0])
    results = run_study(study, cohort / "sizes")
    train = results.metrics[(results.metrics["part"] == "train") & (results.metrics["metric"] == "accuracy")]
    assert set(train.groupby("train_size")["n"].first()) == {20, 40}
    test = results.metrics[results.metrics["part"] == "test"]
    assert test.groupby("train_size")["n"].sum().nunique() == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"task": {"label": "subtype"}, "heads": ["probe", "paper-classification"]},
        {"task": {"survival": "dss"}, "heads": ["linear"], "methods": ["panther", "deepsets"]},
        {"task": {"label": "subtype"}, "methods": [{"name": "abmil", "hidden": 16, "attention": 8}, "attnmisl"]},
    ],
    ids=["heads", "survival", "networks"],
)
def test_the_models_that_were_tested_are_kept_and_predict_the_same(changes, cohort, tmp_path):
    training = {"training": {"epochs": 2}, "mil_training": {"epochs": 1}}
    results = run_study(study_in(cohort, **changes, **training), tmp_path)
    for trained in results.run.trained:
        cell = trained.cell
        model = results.model(trained.fold, method=cell.method.title, head=cell.head.title)
        _, parts = load_predictions(trained.predictions)
        ids = [str(name) for name in parts["test"].pop("ids")]
        bags = results.run.population.bags[cell.encoder]
        names, result, _ = predict_bags(model, [bags[name] for name in ids])
        assert names == ids
        for name, values in parts["test"].items():
            np.testing.assert_allclose(result[name], values, atol=1e-5)
        assert set(model.about["samples"]) == {str(name) for name in parts["train"]["ids"]}
        assert model.about["task"] == results.run.study.task.model_dump(exclude_none=True)
    listed = pd.read_csv(tmp_path / "models.csv")
    assert [tmp_path / name for name in listed["model"]] == [t.model for t in results.run.trained]


def test_a_model_that_is_gone_or_damaged_is_trained_again_to_the_same_bytes(cohort, tmp_path):
    study = study_in(cohort, heads=["linear"], training={"epochs": 2})
    first = train_all(study, tmp_path)
    paths = [trained.model for trained in first.trained]
    before = [path.read_bytes() for path in paths]
    paths[0].unlink()
    paths[1].write_bytes(before[1][:100])
    again = train_all(study, tmp_path)
    assert [path.read_bytes() for path in paths] == before
    assert len(again.notes) == 1
    assert paths[1].name in again.notes[0]


def test_a_model_is_chosen_by_its_cell(cohort, tmp_path):
    results = run_study(study_in(cohort, methods=["protocounts", "deepsets"]), tmp_path)
    assert results.model(1, method="deepsets").method.name == "deepsets"
    with pytest.raises(InputError, match="2 models of fold 0; name one with `method=`: 'protocounts'"):
        results.model()
    with pytest.raises(InputError, match="fold: 3, expected"):
        results.model(3, method="deepsets")
    with pytest.raises(InputError, match="No model has method 'deepset'; did you mean 'deepsets'"):
        results.model(method="deepset")
    with pytest.raises(InputError, match="Models have no 'heads'; did you mean 'head'"):
        results.model(heads="probe")


def test_a_study_of_values_needs_no_file_and_leaves_none_unless_written(cohort, tmp_path):
    table = pd.read_csv(cohort / "table.csv")
    values = {**generated.SMALL, **QUICK, "table": table, "features": str(cohort / "features")}
    results = run_study(values, workers=1)
    filed = run_study(study_in(cohort), tmp_path / "filed")
    pd.testing.assert_frame_equal(
        results.summary.drop(columns="encoder"), filed.summary.drop(columns="encoder"), check_exact=True
    )
    folder = results.run.folder
    results.write(tmp_path / "kept")
    assert (tmp_path / "kept/run.json").exists()
    assert len(list((tmp_path / "kept/models").iterdir())) == 3
    del results
    assert not folder.exists()
    with pytest.raises(InputError, match=r"methods.*'panter'; did you mean"):
        run_study({**values, "methods": ["panter"]})


def test_external_patients_that_were_trained_on_are_refused(cohort):
    study = study_in(cohort, external={"same": {"table": "table.csv", "features": {"npy": "features"}}})
    with pytest.raises(InputError, match="are in the study itself"):
        train_all(study, cohort / "refused")

"""Studies end to end on generated cohorts: signal found, chance when shuffled, no leakage, killed and resumed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from panther.errors import InputError
from panther.study.file import load_study
from panther.study.results import evaluate
from panther.study.run import load_predictions, run_study
from panther.study.tables import latex, markdown, write_results
from study.generated import generate

QUICK = {
    "name": "quick",
    "table": "table.csv",
    "features": {"npy": "features"},
    "splits": {"scheme": "kfold", "k": 3, "seed": 0},
    "methods": ["protocounts"],
    "heads": ["probe"],
    "n_prototypes": [4],
    "prototypes": {"restarts": 2, "passes": 1},
    "bootstrap": 50,
}


def study_in(folder: Path, **changes):
    (folder / "study.yaml").write_text(yaml.safe_dump({**QUICK, **changes}))
    return load_study(folder / "study.yaml")


def results_of(folder: Path, **changes):
    study = study_in(folder, **changes)
    return evaluate(study, run_study(study, folder / "out"))


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


def test_a_planted_signal_is_recovered_and_shuffled_labels_fall_to_chance(tmp_path):
    found = {}
    for shuffled in (False, True):
        scores = {"balanced_accuracy": [], "c_index": []}
        for seed in range(3):
            folder = tmp_path / f"{shuffled}-{seed}"
            generate(folder, seed=seed, shuffled=shuffled)
            scores["balanced_accuracy"].append(
                value(results_of(folder, task={"label": "subtype"}), "balanced_accuracy")
            )
            scores["c_index"].append(value(results_of(folder, task={"survival": "dss"}), "c_index"))
        found[shuffled] = {name: float(np.mean(values)) for name, values in scores.items()}
    assert found[False]["balanced_accuracy"] > 0.8
    assert found[False]["c_index"] > 0.62
    assert abs(found[True]["balanced_accuracy"] - 0.5) < 0.12
    assert abs(found[True]["c_index"] - 0.5) < 0.1


def test_changing_test_patients_changes_nothing_upstream(tmp_path):
    for name in "ab":
        generate(tmp_path / name)
    study = study_in(tmp_path / "a", task={"label": "subtype"}, heads=["linear"], training={"epochs": 3})
    first = run_study(study, tmp_path / "a/out")
    tested = set(first.population.splits[0].test["test"])
    for path in (tmp_path / "b/features").glob("*.npy"):
        if path.stem[:4] in tested:
            np.save(path, np.load(path) + 5.0)
    second = run_study(
        study_in(tmp_path / "b", task={"label": "subtype"}, heads=["linear"], training={"epochs": 3}),
        tmp_path / "b/out",
    )
    prototypes = [{p.name for p in (tmp_path / n / "out/cache").glob("prototypes-*")} for n in "ab"]
    assert len(prototypes[0] & prototypes[1]) == 1  # the fold whose training part does not hold the changed patients
    (shared,) = prototypes[0] & prototypes[1]
    assert (tmp_path / "a/out/cache" / shared).read_bytes() == (tmp_path / "b/out/cache" / shared).read_bytes()
    one, other = (load_predictions(next(t.path for t in o.trained if t.fold == 0)) for o in (first, second))
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
        task={"label": "subtype"},
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
    own = results.predictions[results.predictions["part"] == "test"]
    assert (own.groupby(["method", "head", "seed"])["sample"].nunique() == 60).all()  # everybody is tested once
    np.testing.assert_allclose(own[["probability_high", "probability_low"]].sum(axis=1), 1)
    interval = results.summary[results.summary["metric"] == "balanced_accuracy"]
    assert (interval["ci_low"] <= interval["mean"] + 1e-9).all()
    assert (interval["ci_high"] >= interval["mean"] - 1e-9).all()
    assert set(results.comparisons["reference"]) <= {
        "panther + linear",
        "panther + paper-classification",
        "panther + probe",
    }
    assert results.comparisons["p_bootstrap"].between(0, 1).all()
    written = write_results(results, tmp_path / "tables", ["balanced_accuracy", "weighted_f1"])
    assert pd.read_parquet(tmp_path / "tables/metrics.parquet").shape == metrics.shape
    assert {p.suffix for p in written} == {".csv", ".parquet", ".md", ".tex"}
    assert "elsewhere, Bal. acc." in markdown(results, ["balanced_accuracy"])
    assert latex(results, ["balanced_accuracy"]).count(r"\\") == 7


def test_a_second_run_computes_nothing_and_a_changed_setting_only_what_it_touches(cohort):
    study = study_in(cohort, task={"label": "subtype"})
    run_study(study, cohort / "cached")
    before = {p.name: p.stat().st_mtime_ns for p in (cohort / "cached/cache").iterdir()}
    run_study(study, cohort / "cached")
    assert {p.name: p.stat().st_mtime_ns for p in (cohort / "cached/cache").iterdir()} == before
    run_study(study_in(cohort, task={"label": "subtype"}, scaling="none"), cohort / "cached")
    new = {p.name for p in (cohort / "cached/cache").iterdir()} - set(before)
    assert {name.split("-")[0] for name in new} == {"model"}


def test_a_smaller_training_part_keeps_the_proportions_and_the_test_part(cohort):
    study = study_in(cohort, task={"label": "subtype"}, train_sizes=[0.5, 1.0])
    results = evaluate(study, run_study(study, cohort / "sizes"))
    train = results.metrics[(results.metrics["part"] == "train") & (results.metrics["metric"] == "accuracy")]
    assert set(train.groupby("train_size")["n"].first()) == {20, 40}
    test = results.metrics[results.metrics["part"] == "test"]
    assert test.groupby("train_size")["n"].sum().nunique() == 1


def test_a_bad_bag_is_told_and_the_study_goes_on(tmp_path):
    generate(tmp_path)
    (tmp_path / "features/P001-0.npy").write_bytes(b"")
    study = study_in(tmp_path, task={"label": "subtype"})
    outcome = run_study(study, tmp_path / "out")
    assert len(outcome.failures) == 1
    assert "P001" in next(iter(outcome.failures))
    tested = [s for split in outcome.population.splits for s in split.test["test"]]
    assert len(tested) == 59


def test_external_patients_that_were_trained_on_are_refused(cohort):
    study = study_in(
        cohort, task={"label": "subtype"}, external={"same": {"table": "table.csv", "features": {"npy": "features"}}}
    )
    with pytest.raises(InputError, match="are in the study itself"):
        run_study(study, cohort / "refused")


def test_a_study_killed_again_and_again_ends_with_the_same_numbers(cohort, tmp_path):
    study_in(cohort, task={"survival": "dss"}, methods=["panther", "ot"], heads=["linear"], training={"epochs": 4})
    command = [sys.executable, "-m", "panther", "run", str(cohort / "study.yaml"), "-j", "1", "-o"]
    subprocess.run([*command, str(tmp_path / "whole")], check=True, capture_output=True)
    for delay in (4.0, 5.0, 6.0):
        process = subprocess.Popen(
            [*command, str(tmp_path / "killed")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        time.sleep(delay)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    subprocess.run([*command, str(tmp_path / "killed")], check=True, capture_output=True)
    for name in ("metrics.csv", "predictions.csv", "summary.csv", "comparisons.csv", "table.md"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "killed" / name).read_bytes(), name

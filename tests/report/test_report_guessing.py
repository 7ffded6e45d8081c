"""Better than guessing is said of what beats guessing on the classes that test folds have, and of nothing else."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from panther.evaluation.intervals import resample_counts
from panther.evaluation.metrics import balanced_accuracy, confusion
from panther.evaluation.verdicts import chance, chance_in_resamples
from panther.report.checks import checks
from panther.report.material import gather
from panther.report.page import build_page
from report.studies import run
from study.generated import generate


def people(*folds: str) -> pd.DataFrame:
    """Predictions of folds that test one patient for each letter, of the class of that name."""
    who = [(fold, f"P{fold}-{n}", label) for fold, labels in enumerate(folds) for n, label in enumerate(labels)]
    return pd.DataFrame(who, columns=["fold", "patient", "label"]).assign(sample=[name for _, name, _ in who])


def test_guessing_gives_one_over_the_classes_of_each_fold():
    assert chance("balanced_accuracy", people("RXXY", "XXY", "XY", "RXY")) == pytest.approx((2 / 3 + 2 / 2) / 4)
    assert chance("balanced_accuracy", people("XX")) == 1
    assert chance("auroc", people("XX")) == chance("auroc_TP53", people("XX")) == 0.5
    assert chance("weighted_f1", people("XY")) is None


def test_on_resamples_guessing_gives_what_a_constant_classifier_has_there():
    table = people("RXXXXXXYYY", "RRXXXXXYYY", "XXXXXYYY")
    names = np.unique(table["label"])
    drawn = np.concatenate(list(resample_counts(table["patient"].to_numpy(), 4000, seed=0)))
    folds = []
    for fold in range(3):
        own = (table["fold"] == fold).to_numpy()
        labels = np.searchsorted(names, table["label"][own])
        folds.append(balanced_accuracy(confusion(labels, np.full(own.sum(), 1), 3, drawn[:, own])))
    found = chance_in_resamples("balanced_accuracy", table)
    assert found == pytest.approx(np.mean(folds), abs=0.004)
    assert found > chance("balanced_accuracy", table) + 0.02


@pytest.fixture(scope="module")
def lacking(tmp_path_factory):
    """A third class that only the first of three folds tests."""
    folder = tmp_path_factory.mktemp("lacking")
    generate(folder, patients=36, patches=12)
    table = pd.read_csv(folder / "table.csv", dtype=str)
    number = table["case_id"].str[1:].astype(int)
    rare = number.isin([0, 3, 6, 9, 12, 1])
    table["subtype"] = table["subtype"].where(~rare, "rare")
    table["part"] = np.where(number % 3 == 0, "a", np.where(number % 3 == 1, "b", "c"))
    table.to_csv(folder / "table.csv", index=False)
    return run(folder, task={"label": "subtype"}, methods=["mean"], heads=["probe"], splits={"column": "part"})


def with_result(folder, mean, low, high):
    material = gather(folder)
    table = material.run.summary.copy()
    mine = table["metric"] == "balanced_accuracy"
    table.loc[mine, ["mean", "ci_low", "ci_high"]] = mean, low, high
    table["selected_low"] = np.nan
    return replace(material, run=replace(material.run, summary=table))


def test_a_constant_classifier_is_not_better_than_guessing_where_a_fold_lacks_a_class(lacking):
    guess = (1 / 3 + 1 / 3 + 1 / 2) / 3
    said = [check.sentence for check in checks(with_result(lacking, guess, guess, 0.52))]
    assert not any("is better than guessing" in sentence for sentence in said)
    assert any("could be guessing" in sentence and "guessing gives 0.39 (" in sentence for sentence in said)
    assert any("fold 3 has no rare" in sentence for sentence in said)
    assert any("as few as 1 patient of a class" in sentence for sentence in said)
    above = [check.sentence for check in checks(with_result(lacking, 0.8, 0.7, 0.9))]
    assert any("The best result is better than guessing" in sentence for sentence in above)


def test_an_interval_above_guessing_by_no_more_than_resamples_flatter_it_could_be_guessing(lacking):
    run = gather(lacking).run
    between = (run.chance(run.metric) + chance_in_resamples(run.metric, run.tested())) / 2
    said = [check.sentence for check in checks(with_result(lacking, between + 0.1, between, 0.9))]
    assert any("Even the best result could be guessing" in sentence for sentence in said)


def test_folds_that_have_every_class_need_no_such_words(classes):
    said = [check.sentence for check in checks(gather(classes))]
    assert not any("of a class" in sentence or "every class" in sentence for sentence in said)


def test_the_report_and_the_run_note_what_a_fold_lacks(tmp_path):
    generate(tmp_path, patients=36, patches=8)
    table = pd.read_csv(tmp_path / "table.csv", dtype=str)
    site = table["case_id"].str[1:].astype(int) % 6
    table["subtype"] = table["subtype"].where(site > 1, "rare")
    table.to_csv(tmp_path / "table.csv", index=False)
    splits = {"scheme": "site-kfold", "k": 3}
    folder = run(tmp_path, task={"label": "subtype"}, methods=["mean"], heads=["probe"], splits=splits)
    notes = gather(folder).run.record["notes"]
    (note,) = [one for one in notes if "no sample" in one]
    assert note.startswith("In fold ")
    assert note.endswith(" (of 0 to 2), test has no sample of class rare.")
    assert note in build_page(gather(folder))


@pytest.mark.parametrize("head", ["probe", "linear"])
def test_why_something_is_worse_than_guessing_fits_its_head(head, classes):
    material = gather(classes)
    table = material.run.summary.copy()
    table.loc[:, ["mean", "ci_low", "ci_high"]] = 0.8, 0.7, 0.9
    table.loc[table["head"] == head, ["mean", "ci_low", "ci_high"]] = 0.3, 0.2, 0.4
    (check,) = [c for c in checks(replace(material, run=replace(material.run, summary=table))) if "Worse" in c.sentence]
    assert f"PANTHER + {head} 0.300, at most 0.400" in check.sentence
    assert ("not trained to convergence" in check.advice) == (head == "linear")
    assert ("A probe is fitted" in check.advice) == (head == "probe")

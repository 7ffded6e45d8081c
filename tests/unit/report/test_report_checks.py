"""Checks of the summary: chance, convergence, selection, perfect scores and resamples."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from panther.evaluation.intervals import about_resamples, differences, intervals, resample, resample_counts
from panther.evaluation.metrics import balanced_accuracy, confusion
from panther.evaluation.verdicts import chance, chance_in_resamples
from panther.report.checks import checks
from panther.report.material import gather
from panther.report.page import build_page, render_tab
from report.studies import run, with_summary
from study.generated import generate


def sentences(material) -> list[str]:
    return [check.sentence for check in checks(material)]


def people(*folds: str) -> pd.DataFrame:
    """Predictions of folds, one test patient for each letter, which is the class."""
    rows = [(fold, f"P{fold}-{n}", label) for fold, labels in enumerate(folds) for n, label in enumerate(labels)]
    return pd.DataFrame(rows, columns=["fold", "patient", "label"]).assign(sample=[name for _, name, _ in rows])


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
        tested = (table["fold"] == fold).to_numpy()
        labels = np.searchsorted(names, table["label"][tested])
        folds.append(balanced_accuracy(confusion(labels, np.full(tested.sum(), 1), 3, drawn[:, tested])))
    level = chance_in_resamples("balanced_accuracy", table)
    assert level == pytest.approx(np.mean(folds), abs=0.004)
    assert level > chance("balanced_accuracy", table) + 0.02


@pytest.fixture(scope="module")
def lacking(tmp_path_factory):
    """A third class that only the first of three folds tests."""
    folder = tmp_path_factory.mktemp("lacking")
    generate(folder, patients=36, patches=12)
    table = pd.read_csv(folder / "table.csv", dtype=str)
    number = table["case_id"].str[1:].astype(int)
    table["subtype"] = table["subtype"].where(~number.isin([0, 3, 6, 9, 12, 1]), "rare")
    table["part"] = np.where(number % 3 == 0, "a", np.where(number % 3 == 1, "b", "c"))
    table.to_csv(folder / "table.csv", index=False)
    splits = {"column": "part"}
    return gather(run(folder, task={"label": "subtype"}, methods=["mean"], heads=["probe"], splits=splits))


def test_a_constant_classifier_is_not_better_than_guessing_where_a_fold_lacks_a_class(lacking):
    guess = (1 / 3 + 1 / 3 + 1 / 2) / 3
    text = sentences(with_summary(lacking, mean=guess, ci_low=guess, ci_high=0.52))
    assert not any("is better than guessing" in sentence for sentence in text)
    assert any("could be guessing" in sentence and "guessing gives 0.39 (" in sentence for sentence in text)
    assert any("fold 3 has no rare" in sentence for sentence in text)
    assert any("as few as 1 patient of a class" in sentence for sentence in text)
    above = sentences(with_summary(lacking, mean=0.8, ci_low=0.7, ci_high=0.9))
    assert any("The best result is better than guessing" in sentence for sentence in above)
    # above guessing, but by no more than resamples that lose a class inflate it
    study = lacking.run
    between = (study.chance(study.metric) + chance_in_resamples(study.metric, study.tested())) / 2
    text = sentences(with_summary(lacking, mean=between + 0.1, ci_low=between, ci_high=0.9))
    assert any("Even the best result could be guessing" in sentence for sentence in text)


def test_folds_that_have_every_class_have_no_such_check(classes):
    assert not any("of a class" in text or "every class" in text for text in sentences(gather(classes)))


@pytest.mark.parametrize("head", ["probe", "linear"])
def test_the_advice_on_results_below_chance_fits_the_head(head, classes):
    material = with_summary(gather(classes), mean=0.8, ci_low=0.7, ci_high=0.9)
    assert not any("Worse" in sentence for sentence in sentences(material))
    material = with_summary(material, head=head, mean=0.3, ci_low=0.2, ci_high=0.4)
    (check,) = [check for check in checks(material) if "Worse" in check.sentence]
    assert check.state == "mind"
    assert f"PANTHER + {head} 0.300, at most 0.400" in check.sentence
    assert ("training:" in check.advice) == (head == "linear")
    assert ("A probe is fitted" in check.advice) == (head == "probe")


def test_a_head_trained_in_few_steps_is_reported_with_settings_of_the_study_file(classes):
    material = gather(classes)
    (check,) = [check for check in checks(material) if "trained in at most" in check.sentence]
    assert check.state == "mind"
    assert "linear: trained in at most 2 steps;" in check.sentence
    assert check.advice.startswith("2 epochs, 32 samples, 32 per batch, ")
    assert "`training: {epochs: 200, learning_rate: 0.001}`" in check.advice
    for training in ({"epochs": 200}, {"epochs": 100, "batch_size": 8}):
        longer = replace(material.run, study=material.run.study.model_copy(update={"training": training}))
        assert not any("trained in at most" in sentence for sentence in sentences(replace(material, run=longer)))


@pytest.mark.parametrize(("low", "verdict"), [(0.45, "could be guessing"), (0.55, "is better than guessing")])
def test_the_best_of_many_is_better_than_guessing_only_where_its_corrected_interval_is(low, verdict, classes):
    material = with_summary(gather(classes), mean=0.8, ci_low=0.6, ci_high=0.9, selected_low=low)
    assert any(verdict in sentence and f"{low:.3f}" in sentence for sentence in sentences(material))
    assert f"{low:.3f} to" in render_tab(material, "Summary", absent=[])


@pytest.mark.parametrize("bound", [0.87, 0.45])
def test_a_perfect_score_is_not_called_good(bound, classes):
    material = with_summary(gather(classes), mean=0.8, ci_low=0.6, ci_high=0.9)
    first = material.run.rows[0]
    material = with_summary(material, row=first, mean=1.0, ci_low=1.0, ci_high=1.0, exact_low=bound)
    perfect = [check for check in checks(material) if "perfect score" in check.sentence]
    assert [check.state for check in perfect] == ["mind"]
    assert (
        f"from 48 patients without an error the exact binomial bound (95 %, two-sided) is {bound:.3f}" in perfect[0][1]
    )
    assert ("could be guessing" in perfect[0].sentence) == (bound < 0.5)
    assert not any("better than guessing" in sentence for sentence in sentences(material))
    assert f"[1.000, 1.000], exact bound {bound:.3f}" in build_page(material)


@pytest.fixture(scope="module")
def unresampled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("none")
    generate(folder, patients=36, patches=12)
    table = pd.read_csv(folder / "table.csv", dtype=str)
    table.assign(age=40 + table["case_id"].str[1:].astype(int) % 30).to_csv(folder / "table.csv", index=False)
    methods = ["mean", "deepsets"]
    return run(folder, task={"survival": "dss"}, methods=methods, heads=["probe"], covariates=["age"], bootstrap=0)


def test_a_study_without_resamples_and_its_report_have_neither_intervals_nor_p_values(unresampled):
    for name in ("comparisons", "gains"):
        table = pd.read_csv(unresampled / f"{name}.csv")
        assert table[["ci_low", "ci_high", "p_value"]].isna().all(axis=None)
        assert table["difference"].notna().any()
    assert pd.read_csv(unresampled / "summary.csv")[["ci_low", "ci_high"]].isna().all(axis=None)
    assert "[" not in (unresampled / "table.md").read_text()
    material = gather(unresampled)
    assert about_resamples(0) in sentences(material)
    assert about_resamples(0) in material.run.record["notes"]
    assert "No intervals: no patients were resampled." in build_page(material)
    best = material.run.best()["row"].iloc[0]
    compared = material.run.comparisons.assign(row=best)  # the best row may be the reference
    shown = render_tab(replace(material, run=replace(material.run, comparisons=compared)), "Summary", absent=[])
    assert "not tested, because no patients were resampled" in " ".join(shown.split())
    assert "significant" not in shown


def test_without_resamples_intervals_and_p_values_are_nan():
    first, second = (resample(lambda c, v=v: {"mean": c @ np.arange(4.0) / v}, list("abcd"), 0) for v in (4, 8))
    interval, difference = intervals(first)["mean"], differences(first, second)["mean"]
    assert (first.whole, difference.value, difference.resamples) == ({"mean": 1.5}, 0.75, 0)
    assert np.isnan([interval.low, interval.high, difference.low, difference.high, difference.p_value]).all()


def test_few_resamples_are_noted(classes):
    assert [about_resamples(number) is not None for number in (5, 99, 100, 1000)] == [True, True, False, False]
    assert about_resamples(20) in sentences(gather(classes))

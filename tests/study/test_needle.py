"""The diagnosis: what is called a needle, what panoramic, when nothing is decided; that nobody but training patients is asked."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import panther
from panther.cohort.targets import Classes, Labels, Survival, Target, Values
from panther.errors import InputError
from panther.evaluation.intervals import Resampled
from panther.models.presets import USUAL_LOSS
from panther.models.tasks import fit_task
from panther.study.file import parse_study
from panther.study.needle.decide import MARGIN, decide
from panther.study.needle.job import inner_predictions
from panther.study.needle.judge import METRIC
from panther.study.needle.looks import LOOKS, scaled_looks
from panther.study.needle.words import diagnosis_sentences, in_words
from panther.study.results import Results

PATIENTS = 36


def slide(rng: np.random.Generator, task: str, yes: bool, patches: int = 300, dim: int = 8) -> np.ndarray:
    """Two tissues, which look a little different in every patient."""
    share = rng.normal(0.65 if yes else 0.35, 0.05) if task == "proportions" else rng.uniform(0.3, 0.7)
    x = rng.normal(size=(patches, dim)) + rng.normal(0, 0.5, dim)
    x[:, 0] += 4 * (rng.random(patches) < share)
    if task == "needle" and yes:
        x[:3, 1] += 8
    return x.astype("f4")


def study(task: str, patients: int = PATIENTS, patches: int = 300, **changes: object) -> dict[str, object]:
    rng = np.random.default_rng(0)
    names = [f"P{number:02}" for number in range(patients)]
    bags = {name: slide(rng, task, number % 2 == 0, patches) for number, name in enumerate(names)}
    table = pd.DataFrame({"slide_id": names, "case_id": names, "kind": ["yes", "no"] * (patients // 2)})
    content = {"name": task, "table": table, "features": bags, "task": {"label": "kind"}, "heads": ["probe"]}
    content |= {"methods": ["mean"], "n_prototypes": [3], "splits": {"k": 2}, "bootstrap": 10}
    return {**content, "prototypes": {"restarts": 1, "passes": 2, "sample": 2000}, "diagnose": True, **changes}


@pytest.fixture(scope="module")
def needle(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return panther.run_study(study("needle"), tmp_path_factory.mktemp("needle"))


def test_a_few_patches_far_away_in_half_of_the_patients_are_called_a_needle(needle: Results) -> None:
    found = needle.diagnosis["diagnosis_verdicts"].iloc[0]
    assert found["verdict"] == "needle"
    assert found["stands_out"] > 0.9
    assert found["whole"] < 0.75
    assert found["difference"] == pytest.approx(found["stands_out"] - found["whole"])
    assert found["patients"] == PATIENTS
    assert "rare prototypes (prototypes: {rare: 4})" in found["words"]


def test_every_look_has_a_score_with_its_spread_in_every_fold(needle: Results) -> None:
    table = needle.diagnosis["diagnosis"]
    assert table[["encoder", "fold", "what"]].to_numpy().tolist() == [
        ["features", fold, look] for fold in (0, 1) for look in LOOKS
    ]
    assert set(table["patients"]) == {PATIENTS // 2}
    assert table["std"].notna().all()
    overall = needle.diagnosis["diagnosis_verdicts"].iloc[0]
    for look, own in table.groupby("what"):
        assert own["score"].mean() == pytest.approx(overall[look])


def test_folder_printed_table_notes_and_report_say_it(needle: Results) -> None:
    folder = needle.run.folder
    sentence = diagnosis_sentences(needle.diagnosis["diagnosis_verdicts"])[0]
    assert len(pd.read_csv(folder / "diagnosis.csv")) == 8
    assert sentence in needle.table()
    assert (folder / "table.md").read_text() == needle.table()
    assert sentence in panther.study.record.read_record(folder)["notes"]
    page = panther.make_report(folder).html
    section = page.split('id="panel-panoramic-or-needle"')[1].split("</section>")[0]
    assert "looks like a needle" in section
    assert "max-pooling" in section


def test_what_is_asked_is_no_row_of_the_study(needle: Results) -> None:
    assert set(needle.summary["method"]) == {"mean"}
    assert len(list((needle.run.folder / "models").iterdir())) == 2


def test_other_test_patients_change_nothing(tmp_path: Path) -> None:
    """Their labels turned round: the diagnosis stays, to the last digit."""
    content = study("noise", 24, 20, splits={"column": "part"}, n_prototypes=[2])
    table = content["table"].assign(part=["train", "train", "test", "test"] * 6)
    turned = table["kind"].mask(table["part"] == "test", table["kind"].map({"yes": "no", "no": "yes"}))
    found = [panther.run_study({**content, "table": one}, tmp_path) for one in (table, table.assign(kind=turned))]
    assert found[0].diagnosis["diagnosis"].equals(found[1].diagnosis["diagnosis"])
    assert not found[0].metrics.equals(found[1].metrics)
    assert len(list((tmp_path / "cache").glob("diagnosis-*.npz"))) == 1  # not even asked again


def test_shifted_proportions_are_called_panoramic_and_the_tables_go_when_nobody_asks(tmp_path: Path) -> None:
    found = panther.run_study(study("proportions", patches=100, splits={"scheme": "holdout"}), tmp_path)
    verdict = found.diagnosis["diagnosis_verdicts"].iloc[0]
    assert verdict["verdict"] == "panoramic"
    assert verdict["whole_by"] == "pi"
    plain = panther.run_study(study("proportions", patches=100, splits={"scheme": "holdout"}, diagnose=False), tmp_path)
    assert plain.diagnosis == {}
    assert not list(tmp_path.glob("diagnosis*"))
    assert "Panoramic or needle" not in panther.make_report(tmp_path).html


def test_noise_is_undecided() -> None:
    found = panther.run_study(study("noise", patches=40, splits={"scheme": "holdout"}, n_prototypes=[2]))
    verdict = found.diagnosis["diagnosis_verdicts"].iloc[0]
    assert verdict["verdict"] == "undecided"
    assert verdict["words"].startswith("undecided")


def scores(spread: float = 0.02, resamples: int = 500, **means: float) -> Resampled:
    rng = np.random.default_rng(0)
    return Resampled(means, {look: mean + spread * rng.normal(size=resamples) for look, mean in means.items()})


@pytest.mark.parametrize(
    ("means", "spread", "verdict"),
    [
        ({"pi": 0.6, "means": 0.7, "tail": 0.8, "max": 0.95}, 0.02, "needle"),
        ({"pi": 0.6, "means": 0.9, "tail": 0.7, "max": 0.5}, 0.02, "panoramic"),
        ({"pi": 0.9, "means": 0.7, "tail": 0.94, "max": 0.5}, 0.001, "undecided"),  # surely better, but not by much
        ({"pi": 0.6, "means": 0.7, "tail": 0.8, "max": 0.95}, 0.2, "undecided"),  # much better, but not surely
        ({"pi": 0.2, "means": 0.3, "tail": 0.4, "max": 0.5}, 0.02, "undecided"),  # surely better than worse than a guess
        ({"pi": 1.0, "means": 1.0, "tail": 1.0, "max": 1.0}, 0.0, "undecided"),
    ],
)  # fmt: skip
def test_the_rule_wants_a_lead_that_is_large_sure_and_above_chance(
    means: dict[str, float], spread: float, verdict: str
) -> None:
    assert decide(scores(spread, **means), 0.5).verdict == verdict


def test_the_rule_does_not_prefer_a_side() -> None:
    for seed in range(20):
        a, b, c, d = np.random.default_rng(seed).uniform(0.5, 1, 4)
        one, other = (
            decide(scores(0.01, pi=w[0], means=w[1], tail=o[0], max=o[1]), 0.5)
            for w, o in (((a, b), (c, d)), ((c, d), (a, b)))
        )
        turned = {"needle": "panoramic", "panoramic": "needle", "undecided": "undecided"}
        if abs(one.difference.value) > MARGIN + 0.05 or abs(one.difference.value) < MARGIN - 0.02:
            assert other.verdict == turned[one.verdict]
        assert other.difference.value == pytest.approx(-one.difference.value)


def test_words_say_what_was_found_and_what_to_do() -> None:
    called = decide(scores(pi=0.6, means=0.7, tail=0.8, max=0.95), 0.5)
    said = in_words(called, "auroc", rare=False)
    assert "AUROC of probes: means 0.700, max-pooling 0.950; difference +0.250" in said
    assert "abmil" in said
    assert "rare" not in in_words(called, "auroc", rare=True)
    for means, spread, why in (
        ((0.5, 0.5, 0.5, 0.5), 0.1, "no look tells surely more than a guess"),
        ((0.8, 0.6, 0.9, 0.6), 0.1, "is within its uncertainty"),
        ((0.8, 0.6, 0.84, 0.6), 0.001, "tell nearly the same"),
    ):
        assert why in in_words(decide(scores(spread, **dict(zip(LOOKS, means, strict=True))), 0.5), "auroc", rare=False)
    nothing = decide(scores(np.nan, pi=0.5, means=0.5, tail=0.5, max=0.5), 0.5)
    assert "too small to be scored" in in_words(nothing, "auroc", rare=False)
    both = pd.DataFrame({"encoder": ["a", "b"], "patients": 9, "verdict": ["needle", "undecided"], "words": "x"})
    assert diagnosis_sentences(both)[-1].endswith("do not agree (needle, undecided); be cautious.")


TOKEN = [(-1, "tail_share", -1), (-1, "tail_excess", -1), *((c, "tail_nearest", -1) for c in range(2))]
COLUMNS = [
    *((c, s, j) for c in range(2) for s, j in [("weight", -1), *((s, j) for s in ("mean", "variance") for j in range(3))]),
    *TOKEN,
    *((-1, s, j) for s in ("tail_mean", "tail_variance") for j in range(3)),
]  # fmt: skip


def test_looks_are_scaled_by_the_training_rows_alone() -> None:
    rng = np.random.default_rng(0)
    x, largest = rng.random((12, len(COLUMNS))), rng.random((12, 3))
    train = np.arange(8)
    looks = scaled_looks(x, COLUMNS, largest, train)
    assert {name: look.shape[1] for name, look in looks.items()} == {"pi": 2, "means": 9, "tail": 8, "max": 3}
    x[8:], largest[8:] = 7, 7
    again = scaled_looks(x, COLUMNS, largest, train)
    for name, look in looks.items():
        assert np.array_equal(look[train], again[name][train])


def targets(signal: np.ndarray) -> list[Target]:
    both = np.stack([signal > 0, signal > 0.5], 1).astype(float)
    both[::9, 1] = np.nan
    return [
        Classes(("a", "b"), (signal > 0).astype(int)),
        Survival(np.exp(-signal) + 0.1, np.arange(len(signal)) % 4 > 0),
        Values(signal),
        Labels(("x", "y"), both),
    ]


@pytest.mark.parametrize("kind", range(4))
def test_every_kind_of_target_is_predicted_from_the_look_that_knows_it(kind: int) -> None:
    rng = np.random.default_rng(0)
    signal = rng.normal(size=40)
    x, largest = rng.random((40, len(COLUMNS))), rng.random((40, 3))
    largest[:, 1] += signal
    target = targets(signal)[kind]
    task = fit_task(USUAL_LOSS[target.kind], target)
    patients = np.arange(40) // 2
    seen = []
    for one in inner_predictions(x, COLUMNS, largest, target, patients, task):
        if one.look == "max":
            assert task.judge(one.prediction, target.take(one.rows))[METRIC[target.kind][0]] > 0.7
            seen += one.rows.tolist()
    assert sorted(seen) == list(range(40))


def test_inner_folds_that_teach_nothing_are_left_out() -> None:
    rng = np.random.default_rng(0)
    x, largest = rng.random((20, len(COLUMNS))), rng.random((20, 3))
    target = Classes(("a", "b"), (np.arange(20) == 3).astype(int))
    found = list(inner_predictions(x, COLUMNS, largest, target, np.arange(20), fit_task("cross-entropy", target)))
    assert all(3 not in one.rows for one in found)
    assert len(found) == 4 * len(LOOKS)


@pytest.mark.parametrize("wrong", ["often", 2, [True], None])
def test_a_wish_that_is_none_is_refused(wrong: object) -> None:
    plain = {"name": "x", "table": "t.csv", "features": {"e": "f"}, "task": {"label": "kind"}}
    with pytest.raises(InputError, match="diagnose"):
        parse_study({**plain, "diagnose": wrong})


def test_a_study_without_patches_cannot_be_diagnosed() -> None:
    with pytest.raises(InputError, match="diagnose: looks at patches"):
        parse_study({"name": "x", "table": "t.csv", "embeddings": {"titan": "f"}, "task": {"label": "k"}, "diagnose": True})  # fmt: skip

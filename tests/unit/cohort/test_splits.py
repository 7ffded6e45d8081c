"""Schemes at patient level: complete, without divided patients, balanced and repeatable."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from panther import make_splits
from panther.cohort.load import Cohort, load_cohort
from panther.cohort.spec import SplitSpec
from panther.cohort.splits import SCHEMES, Split, balanced_splits, check, deal, shared_sites
from panther.errors import InputError


def cohort(n: int = 200, *, survival: bool = False, level: str = "patient", seed: int = 0) -> Cohort:
    rng = np.random.default_rng(seed)
    patient = np.repeat(np.arange(n), rng.integers(1, 4, n))
    label, site = rng.choice(["a", "b", "c"], n, p=[0.6, 0.3, 0.1]), rng.integers(12, size=n)
    frame = pd.DataFrame(
        {"case_id": [f"p{i:03d}" for i in patient], "slide_id": [f"s{i}" for i in range(len(patient))]}
    )
    frame["label"], frame["center"] = label[patient], [f"site{i}" for i in site[patient]]
    frame["days"], frame["event"] = rng.integers(1, 3000, n)[patient], (rng.random(n) < 0.25).astype(int)[patient]
    outcome = {"time": "days", "event": "event"} if survival else {"label": "label"}
    return load_cohort(frame, **outcome, level=level)


@pytest.mark.parametrize("scheme", sorted(SCHEMES))
@pytest.mark.parametrize("survival", [False, True])
@pytest.mark.parametrize("level", ["patient", "slide"])
def test_every_sample_is_used_and_no_patient_is_divided(scheme, survival, level):
    all_samples = cohort(survival=survival, level=level)
    patient = {sample.id: sample.patient for sample in all_samples.samples}
    splits, again, other = (make_splits(all_samples, scheme, k=4, val=True, seed=seed) for seed in (1, 1, 2))
    assert splits == again != other
    assert len(splits) == (1 if scheme == "holdout" else 4)
    for split in splits:
        assert sorted(name for ids in split.parts().values() for name in ids) == sorted(all_samples.ids)
        parts = [{patient[name] for name in ids} for ids in split.parts().values()]
        assert len(parts) == 3
        assert sum(map(len, parts)) == len(set().union(*parts))
    if scheme != "holdout":
        assert sorted(name for split in splits for name in split.test["test"]) == sorted(all_samples.ids)
    if scheme == "site-kfold":
        assert all(shared_sites(all_samples, split) == [] for split in splits)
        assert all(shared_sites(all_samples, replace(split, test={"test": split.val})) == [] for split in splits)


@pytest.mark.parametrize("survival", [False, True])
def test_kfold_deals_every_stratum_evenly(survival):
    all_samples = cohort(survival=survival)
    splits, balance = balanced_splits(all_samples, SplitSpec(scheme="kfold", k=5))
    tests = [all_samples.positions(split.test["test"]) for split in splits]
    tally = np.array([np.bincount(all_samples.target.strata()[rows], minlength=8) for rows in tests])
    assert np.ptp(tally, axis=0).max() <= 1
    assert np.ptp([len(rows) for rows in tests]) <= 1
    if survival:
        assert np.ptp([all_samples.target.event[rows].sum() for rows in tests]) <= 2
    assert balance.imbalance < 0.05


@pytest.mark.parametrize("shares", [(50, 25, 25), (80, 10, 10), (0.7, 0, 0.3), (8, 1, 1)])
def test_a_holdout_keeps_the_shares_in_every_class(shares):
    all_samples = cohort(400)
    (split,) = make_splits(all_samples, "holdout", shares=shares)
    wanted = np.array(shares) / sum(shares)
    for label in range(3):
        members = all_samples.target.labels == label
        part = [members[all_samples.positions(ids)].sum() for ids in (split.train, split.val, split.test["test"])]
        assert np.abs(np.array(part) - wanted * members.sum()).max() < 2
    part = deal(np.array([0] * 50 + [1] + [2]), list(wanted), np.random.default_rng(0), first=0)
    assert part[50] == part[51] == 0  # a class of one sample trains


def frame(**columns: list) -> pd.DataFrame:
    n = len(next(iter(columns.values())))
    return pd.DataFrame({"slide_id": [f"s{i}" for i in range(n)], "case_id": [f"p{i}" for i in range(n)], **columns})


@pytest.mark.parametrize(
    ("scheme", "settings", "culprit"),
    [
        ("kfold", {"k": 7}, "7 folds need at least 7 patients, but there are 6"),
        ("kfold", {"k": 1}, "k: found 1"),
        ("kfold", {"k": 2, "val": True}, "at least `k=3`"),
        ("site-kfold", {"k": 3}, "3 folds need at least 3 sites: found 2"),
        ("holdout", {"shares": (1, 0, 0)}, "shares"),
        ("random", {}, "scheme: found"),
    ],
)
def test_a_scheme_that_cannot_be_is_refused(scheme, settings, culprit):
    small = load_cohort(frame(label=list("aabbab"), center=list("xxxyyy")), label="label")
    with pytest.raises(InputError, match=culprit):
        make_splits(small, scheme, **settings)


def test_a_fold_without_events_and_a_class_absent_from_training_are_refused():
    few = load_cohort(frame(days=list(range(1, 9)), event=[1, 1, 0, 0, 0, 0, 0, 0]), time="days", event="event")
    with pytest.raises(
        InputError, match=r"fold \d \(of 0 to 3\), none of the 2 samples of test has the event; use fewer folds"
    ):
        make_splits(few, "kfold", k=4)
    rare = load_cohort(frame(label=list("aaaabbbbc")), label="label")
    with pytest.raises(InputError, match=r"fold \d \(of 0 to \d\), no training sample is of class c"):
        make_splits(rare, "kfold", k=3)


def test_a_patient_in_two_parts_is_refused_by_name():
    slides = load_cohort(frame(label=list("abab")).assign(case_id=list("ppqq")), label="label", level="slide")
    with pytest.raises(InputError, match=r"patients in two parts: 1, e\.g\. p in train and test"):
        check(slides, Split(("s0", "s2", "s3"), (), {"test": ("s1",)}), "fold 0")
    notes = check(slides, Split(("s0", "s1"), (), {"test": ("s2",)}), "fold 0")
    assert notes == ["In fold 0, test has no sample of class b."]

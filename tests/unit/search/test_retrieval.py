"""Retrieval: every number against brute force, chance against all draws."""

import itertools
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from made_slides import PROTOTYPES, bag

import panther
from panther.errors import InputError
from panther.search.retrieval import (
    average_precision,
    chance_of_any,
    chance_of_majority,
    chance_of_precision,
    majority_right,
)

AT = (1, 3, 5)


@pytest.fixture(scope="module")
def cohort():
    bags = {f"S{seed:02}": bag(seed) for seed in range(24)}
    table = pd.DataFrame(
        {
            "slide_id": list(bags),
            "case_id": [f"P{n // 2}" for n in range(24)],
            "tissue_source_site": [f"site-{n // 8}" for n in range(24)],
            "grade": [["low", "high", "high"][n // 2 % 3] for n in range(24)],
        }
    )
    return panther.embed_cohort(bags, PROTOTYPES), table


def brute_force(vectors: np.ndarray, labels: list[str], apart: list[list[str]], k: int) -> dict[str, float]:
    """Scores from sorted lists of all distances."""
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    scores: dict[str, list[float]] = {"acc": [], "mmv": [], "map": []}
    for q, own in enumerate(labels):
        others = [n for n in range(len(labels)) if all(group[n] != group[q] for group in apart)]
        right = sum(labels[n] == own for n in others)
        if not right:
            continue
        near = sorted(others, key=lambda n: (-unit[n] @ unit[q], n))[:k]
        got = [labels[n] for n in near]
        votes = Counter(got)
        tied = [label for label in got if votes[label] == max(votes.values())]
        precision = [sum(g == own for g in got[: i + 1]) / (i + 1) for i, g in enumerate(got) if g == own]
        scores["acc"].append(own in got)
        scores["mmv"].append(tied[0] == own)
        scores["map"].append(sum(precision) / min(k, right))
    return {name: float(np.mean(values)) for name, values in scores.items()}


@pytest.mark.parametrize("leave_site_out", [False, True], ids=["patients", "sites"])
def test_scores_are_those_of_brute_force(cohort, leave_site_out):
    embedded, table = cohort
    found = panther.retrieval(embedded, table, "grade", on="cosine", at=AT, leave_site_out=leave_site_out, bootstrap=20)
    apart = [table["case_id"].tolist(), *([table["tissue_source_site"].tolist()] if leave_site_out else [])]
    for k in AT:
        expected = brute_force(np.asarray(embedded.vectors, float), table["grade"].tolist(), apart, k)
        for metric, value in expected.items():
            row = found.summary.set_index(["group", "metric", "k"]).loc[("all", metric, k)]
            assert row["value"] == pytest.approx(value)
            assert row["ci_low"] <= row["value"] <= row["ci_high"]
    classes = found.summary.query("metric == 'map' and k == 5").set_index("group")["value"]
    assert classes["mean over classes"] == pytest.approx((classes["low"] + classes["high"]) / 2)


def test_of_labels_that_tie_that_of_the_nearest_slide_wins():
    assert majority_right(np.array([1, 0, 0, 1]), 1, 2) == 1
    assert majority_right(np.array([1, 0, 0, 1]), 0, 2) == 0
    assert majority_right(np.array([2, 0, 0, 1]), 0, 2) == 1
    assert average_precision(np.array([1, 0, 1]), 1, 2) == pytest.approx((1 + 2 / 3) / 2)
    assert average_precision(np.array([0, 0, 0]), 1, 2) == 0


@pytest.mark.parametrize("counts", [(2, 3), (1, 2, 2), (4, 1, 1)])
@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_chance_is_the_mean_over_all_draws(counts, k):
    labels = np.repeat(np.arange(len(counts)), counts)
    draws = [labels[list(draw)] for draw in itertools.permutations(range(len(labels)), k)]
    for own, right in enumerate(counts):
        assert chance_of_any(counts, own, k) == pytest.approx(np.mean([own in draw for draw in draws]))
        majority = np.mean([majority_right(draw, own, 1) for draw in draws])
        assert chance_of_majority(counts, own, k) == pytest.approx(majority)
        precision = np.mean([average_precision(draw, own, min(k, right)) for draw in draws])
        assert chance_of_precision(counts, own, k) == pytest.approx(precision)


def test_representations_are_compared_on_the_slides_that_both_have(cohort):
    embedded, table = cohort
    bags = {f"S{seed:02}": bag(seed) for seed in range(20)}
    noise = panther.embed_cohort(
        {name: np.random.default_rng(9).normal(size=(30, 6)).astype(np.float32) for name in bags}, PROTOTYPES
    )
    found = panther.retrieval(
        {"good": embedded, "noise": noise}, table, "grade", on=["cosine", "pi"], at=[3], bootstrap=50
    )
    names = [f"{name} on {way}" for name in ("good", "noise") for way in ("cosine", "pi")]
    assert list(dict.fromkeys(found.summary["representation"])) == names
    assert set(found.summary.query("group == 'all'")["queries"]) == {20}
    assert any("20 slides have all 2 representations" in note for note in found.notes)
    values = found.summary.query("group == 'all'").set_index(["representation", "metric"])["value"]
    for row in found.comparisons.query("group == 'all'").to_dict("records"):
        expected = values[row["representation"], row["metric"]] - values["good on cosine", row["metric"]]
        assert row["difference"] == pytest.approx(expected)
        assert row["p_holm"] >= row["p_value"]


def test_an_impossible_retrieval_is_refused(cohort):
    embedded, table = cohort
    for wrong, culprit, more in (
        (table, "'grad'", {"label": "grad"}),
        (table.assign(case_id="one"), "patient", {}),
        (table.assign(grade="high"), "high", {}),
        (table.assign(slide_id=[f"T{n}" for n in range(24)], case_id="x"), "'T0'", {}),
        (table.drop(columns="tissue_source_site"), "site", {"leave_site_out": True}),
        (table, "at", {"at": [0]}),
        (table, "label", {"label": None}),
    ):
        with pytest.raises(InputError, match=culprit):
            panther.retrieval(embedded, wrong, **({"label": "grade"} | more))
    alone = table.assign(grade=["odd" if n < 2 else g for n, g in enumerate(table["grade"])])
    found = panther.retrieval(embedded, alone, "grade", at=[1], bootstrap=0)
    assert any("no queries" in note for note in found.notes)
    assert np.isnan(found.summary["ci_low"]).all()


def test_patients_are_judged_where_embeddings_are_of_patients(cohort):
    _, table = cohort
    patients = panther.embed_cohort({f"P{n}": bag(n) for n in range(12)}, PROTOTYPES)
    found = panther.retrieval(patients, table, "grade", at=[1], bootstrap=0)
    assert set(found.summary.query("group == 'all'")["queries"]) == {12}

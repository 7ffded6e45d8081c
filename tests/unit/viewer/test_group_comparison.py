"""Two groups of a cohort compared on the cohort page, against scipy."""

import numpy as np
import pytest
from scipy import stats

from panther.viewer.cohort.units import Share, units_of
from panther.viewer.pages.cohort import compare, slides_of

HERE = {"Origin": "http://localhost"}


def groups_of_patients(seed=0):
    """40 patients, some of several slides; the first prototype is more in group A."""
    rng = np.random.default_rng(seed)
    shares, patient_of, groups = {}, {}, {"A": set(), "B": set()}
    for number in range(40):
        group = "A" if number < 18 else "B"
        for part in range(1 + number % 3):
            slide = f"{number}-{part}"
            pi = rng.dirichlet([6, 3, 3, 3] if group == "A" else [2, 3, 3, 3])
            shares[slide] = Share(pi, float(rng.integers(50, 500)))
            patient_of[slide] = f"P{number:02d}"
            groups[group].add(slide)
    return groups, shares, patient_of


def test_groups_are_compared_over_patients_as_scipy_does():
    groups, shares, patient_of = groups_of_patients()
    found = compare(groups, shares, patient_of, [f"C{c}" for c in range(4)])
    means = {}
    for name in "AB":
        by_patient = {}
        for slide in groups[name]:
            by_patient.setdefault(patient_of[slide], []).append(shares[slide])
        means[name] = np.stack(
            [np.average([s.pi for s in own], axis=0, weights=[s.patches for s in own]) for own in by_patient.values()]
        )
    p = [stats.mannwhitneyu(np.round(means["A"][:, c], 6), np.round(means["B"][:, c], 6)).pvalue for c in range(4)]
    order = np.argsort(p)
    holm = np.empty(4)
    holm[order] = np.minimum(1, np.maximum.accumulate(np.array(p)[order] * np.arange(4, 0, -1)))
    rows = {row["prototype"]: row for row in found["rows"]}
    for c in range(4):
        assert rows[c]["p"] == pytest.approx(holm[c], rel=1e-9)
        assert rows[c]["difference"] == pytest.approx(means["A"][:, c].mean() - means["B"][:, c].mean())
    # scipy's own bootstrap of the difference; both are random, so about
    other = stats.bootstrap(
        (means["A"][:, 0], means["B"][:, 0]), lambda a, b, axis: a.mean(axis) - b.mean(axis), n_resamples=4000,
        method="percentile", rng=np.random.default_rng(1),
    ).confidence_interval  # fmt: skip
    assert (rows[0]["low"], rows[0]["high"]) == pytest.approx((other.low, other.high), abs=0.012)
    assert found["rows"][0]["prototype"] == 0
    assert found["rows"][0]["p"] < 0.05
    assert "C0" in found["sentence"]
    assert found["counts"]["A"] == {"patients": 18, "slides": len(groups["A"])}


def test_a_patient_in_both_groups_is_left_out():
    groups, shares, patient_of = groups_of_patients()
    moved = next(slide for slide in sorted(groups["A"]) if slide.endswith("-1"))
    groups["A"].remove(moved)
    groups["B"].add(moved)
    found = compare(groups, shares, patient_of, ["C0", "C1", "C2", "C3"])
    assert found["counts"]["A"]["patients"] == 17
    assert found["counts"]["B"]["patients"] == 22
    assert any(patient_of[moved] in note for note in found["notes"])


def test_groups_come_from_the_page(client, bench):
    wanted = {"level": "slides", "a": ["S2", "S3", "S5"], "b": ["S0", "S1", "S4"]}
    found = client.post("/api/cohort/compare", json=wanted, headers=HERE).get_json()
    assert found["counts"] == {"A": {"patients": 2, "slides": 3}, "B": {"patients": 2, "slides": 3}}
    assert {row["title"] for row in found["rows"]} == {"C0 stroma", "C1 tumour nest", "C2"}
    assert "too small" in found["sentence"]
    assert slides_of(units_of(bench.contents, "patients"), ["P0"]) == {"S0", "S1"}


def test_wrong_groups_are_refused(client):
    for body in (
        {"a": [], "b": ["S1"]},
        {"a": ["S0"]},
        {"a": ["S0"], "b": ["nobody"]},
        {"a": ["S0"], "b": ["S0"]},
        {"a": ["S0"], "b": ["S1"]},  # the same patient
        {"a": [["S0"]], "b": ["S1"]},
        {"a": ["S0"], "b": ["S2"], "level": 3},
        {"a": ["S0"], "b": ["S2"], "set": ["x"]},
        ["S0"],
        "S0",
    ):
        response = client.post("/api/cohort/compare", json=body, headers=HERE)
        assert response.status_code in (404, 422), body
        assert response.get_json()["error"]


def test_one_slide_is_compared_with_another_without_a_test(client):
    found = client.post("/api/cohort/compare", json={"a": ["S0"], "b": ["S2"]}, headers=HERE).get_json()
    assert all(row["p"] is None and row["low"] is None for row in found["rows"])
    assert found["test"] == ""

"""Site shift."""

from dataclasses import replace

import numpy as np
import pytest

from panther.errors import InputError
from panther.evaluation.shift import site_shift


def proportions(shift, seed, n=90, c=8):
    """Dirichlet mixes of three sites; with a shift one site has more of one prototype."""
    rng = np.random.default_rng(seed)
    sites = np.array(["A", "B", "C"])[np.arange(n) % 3]
    alpha = np.ones((n, c))
    alpha[sites == "B", 2] += shift
    weights = np.stack([rng.dirichlet(a) for a in alpha])
    return weights, sites.tolist(), [f"s{i}" for i in range(n)]


def test_a_planted_site_shift_is_found_and_its_absence_is_not_mistaken_for_one():
    found = sum(site_shift(*proportions(4.0, seed)).alarm for seed in range(20))
    false = sum(site_shift(*proportions(0.0, seed)).alarm for seed in range(20))
    print(f"planted shift found in {found} of 20 cohorts, false alarms in {false} of 20")
    assert found == 20
    assert false <= 2  # alpha is 0.01: three or more have a chance of 1e-3


def test_a_small_p_is_neither_an_alarm_nor_reassuring():
    report = site_shift(*proportions(0.0, 0))
    for p, alarm, doubtful in ((0.005, True, True), (0.013, False, True), (0.3, False, False)):
        judged = replace(report, p_value=p)
        assert (judged.alarm, judged.doubtful) == (alarm, doubtful)
    weak = next(r for r in (site_shift(*proportions(0.6, seed)) for seed in range(200)) if 0.01 < r.p_value < 0.05)
    assert weak.sentence.startswith("There may be a site shift")
    assert f"p = {weak.p_value:.3f}" in weak.sentence


def test_slides_of_a_patient_stay_together():
    """Three slides a patient, patients unlike each other, no shift: judged by slides it would look like one."""
    rng = np.random.default_rng(0)
    patients = [f"p{i // 3}" for i in range(90)]
    site = {p: "AB"[int(rng.integers(2))] for p in sorted(set(patients))}
    base = {p: rng.dirichlet(np.ones(6)) for p in sorted(set(patients))}
    weights = np.stack([rng.dirichlet(base[p] * 200 + 1e-3) for p in patients])
    report = site_shift(weights, [site[p] for p in patients], [f"s{i}" for i in range(90)], patients)
    assert not report.alarm
    assert sum(report.sites.values()) == 30


def test_slides_that_collapse_are_named():
    weights, sites, samples = proportions(0.0, 1)
    weights[7] = np.eye(8)[3]
    report = site_shift(weights, sites, samples, permutations=20)
    assert report.collapsed == ("s7",)
    assert "s7" in report.sentence


def test_sites_too_small_to_judge_are_left_out_and_one_site_alone_is_refused():
    weights, sites, samples = proportions(0.0, 2)
    sites[0] = "tiny"
    assert site_shift(weights, sites, samples, permutations=5).left_out == {"tiny": 1}
    with pytest.raises(InputError, match="sites: A"):
        site_shift(weights, ["A"] * 90, samples)
    with pytest.raises(InputError, match="Patient same"):
        site_shift(weights[:2], ["A", "B"], ["a", "b"], ["same", "same"])

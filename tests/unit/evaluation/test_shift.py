"""Site shift of proportions; prediction of site and label from embeddings, and their association."""

from dataclasses import replace

import numpy as np
import pytest

from panther.errors import InputError
from panther.evaluation.shift import cramers_v, per_patient, read_site_and_label, site_shift


def proportions(shift, seed, n=90, c=8):
    """Dirichlet mixes of three sites; with a shift one site has more of one prototype."""
    rng = np.random.default_rng(seed)
    sites = np.array(["A", "B", "C"])[np.arange(n) % 3]
    alpha = np.ones((n, c))
    alpha[sites == "B", 2] += shift
    weights = np.stack([rng.dirichlet(a) for a in alpha])
    return weights, sites.tolist(), [f"s{i}" for i in range(n)]


def test_a_planted_site_shift_is_found_and_its_absence_is_not_mistaken_for_one():
    result = sum(site_shift(*proportions(4.0, seed)).alarm for seed in range(20))
    false = sum(site_shift(*proportions(0.0, seed)).alarm for seed in range(20))
    print(f"planted shift found in {result} of 20 cohorts, false alarms in {false} of 20")
    assert result == 20
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
    x, columns = per_patient(np.array([[0.0], [2], [5]]), ["p", "p", "q"], {"site": ["a", "a", "b"]})
    assert (x.tolist(), columns) == ([[1], [5]], {"site": ["a", "b"]})


RNG = np.random.default_rng(0)


def patients(site_effect=0.0, label_effect=0.0, confounded=0.0, n=120, d=60, seed=0):
    rng = np.random.default_rng(seed)
    site = rng.integers(3, size=n)
    label = np.where(rng.random(n) < confounded, site > 0, rng.random(n) < 0.5)
    directions = rng.normal(size=(4, d))
    x = rng.normal(size=(n, d)) + site_effect * directions[site] + label_effect * label[:, None] * directions[3]
    return x, [f"s{i}" for i in site], ["b" if one else "a" for one in label]


def test_planted_sites_and_labels_are_predicted_and_noise_is_not():
    result = read_site_and_label(*patients(site_effect=1, label_effect=0), permutations=99)
    assert result.site.accuracy > 0.9
    assert result.label.p_value > 0.01
    assert result.label.accuracy == pytest.approx(0.5, abs=0.15)
    assert result.site.chance == pytest.approx(1 / 3, abs=0.05)
    both = read_site_and_label(*patients(site_effect=1, label_effect=1), permutations=99)
    assert min(both.label.accuracy, both.label_elsewhere.accuracy) > 0.85


def test_a_label_that_only_the_site_tells_is_not_read_elsewhere_and_the_reader_is_warned():
    result = read_site_and_label(*patients(site_effect=1.5, confounded=0.9), permutations=99)
    assert result.label.accuracy > 0.75
    assert result.label_elsewhere.accuracy < result.label.accuracy - 0.2
    assert result.confounding > 0.6
    assert "Warning: The site is associated with grade" in result.sentences("grade")[-1]


def test_cramers_v_is_none_by_chance_and_one_where_the_site_decides():
    a = np.repeat(["x", "y"], 500)
    assert cramers_v(a, a) == pytest.approx(1, abs=1e-6)
    assert cramers_v(a, np.tile(["p", "q"], 500)) == 0
    assert np.mean([cramers_v(RNG.integers(4, size=60), RNG.integers(3, size=60)) for _ in range(100)]) < 0.1
    assert cramers_v(a, ["same"] * 1000) == 0
    # 2 x 2 of 30, 10, 10, 30: chi square 20 of 80, corrected by (1 / 79), over (2 - 1 / 79 - 1)
    one, other = np.repeat(["x", "x", "y", "y"], [30, 10, 10, 30]), np.repeat(["p", "q", "p", "q"], [30, 10, 10, 30])
    assert cramers_v(one, other) == pytest.approx(np.sqrt((20 / 80 - 1 / 79) / (1 - 1 / 79)))

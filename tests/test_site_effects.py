"""Effects of sites against formulae worked out by hand, sampling, and integration of the posterior."""

import numpy as np
import pytest

from panther.errors import InputError
from panther.statistics.site_effects import new_site_effect, shrunk, site_effects


def planted(seed=0, sizes=(30, 12, 5), d=400, effect=(0.0, 1.5, -2.0), label_gap=0.0):
    """Slides of sites that differ by normal effects of these sizes; the label, rarer at the last sites, adds a gap."""
    rng = np.random.default_rng(seed)
    site = np.repeat(np.arange(len(sizes)), sizes)
    shift = rng.normal(size=(len(sizes), d)) * np.abs(effect)[:, None]
    label = (rng.random(len(site)) < np.array([0.8, 0.5, 0.3])[site]).astype(float)
    gap = rng.normal(size=d) * label_gap
    spread = rng.uniform(0.5, 3, d)
    y = 7 + spread * (shift[site] + label[:, None] * gap + rng.normal(size=(len(site), d)))
    return y, site, label[:, None], shift * spread, spread


def test_planted_effects_come_back():
    y, site, _, shift, spread = planted()
    found = site_effects(y, site)
    contrasts = found.effects[1:] - found.effects[0]
    wanted = shift[1:] - shift[0]
    assert np.corrcoef(contrasts.ravel(), wanted.ravel())[0, 1] > 0.95
    np.testing.assert_allclose(np.median(found.spread / spread), 1, rtol=0.05)
    assert found.kept[1] > 0.9


def test_where_sites_do_not_differ_next_to_nothing_is_moved():
    y, site, *_ = planted(effect=(0, 0, 0))
    found = site_effects(y, site)
    assert (np.sqrt(np.mean((found.effects / found.spread) ** 2, 1)) < 0.1).all()


def test_raw_effects_weighted_by_slides_add_up_to_nothing():
    y, site, *_ = planted()
    found = site_effects(y, site)
    raw = found.effects / found.kept[:, None]
    np.testing.assert_allclose(np.bincount(site) @ raw, 0, atol=1e-8)
    np.testing.assert_allclose(found.mean, y.mean(0))


def test_a_protected_label_is_not_taken_for_the_site():
    y, site, label, shift, _ = planted(sizes=(60, 60, 60), label_gap=5, effect=(0.3, 0.3, 0.3))
    wanted = (shift[2] - shift[0]).ravel()

    def error(found):
        return np.linalg.norm(found.effects[2] - found.effects[0] - wanted) / np.linalg.norm(wanted)

    assert error(site_effects(y, site, label)) < 1
    assert error(site_effects(y, site)) > 2 * error(site_effects(y, site, label))


def test_least_squares_are_those_of_a_loop_over_columns():
    y, site, label, *_ = planted(d=7)
    found = site_effects(y, site, label)
    raw = found.effects / found.kept[:, None]
    size = np.bincount(site) / len(site)
    for column in range(7):
        design = np.column_stack([*(site == s for s in range(3)), label - label.mean()]).astype(float)
        coefficients = np.linalg.lstsq(design, y[:, column], rcond=None)[0]
        grand = size @ coefficients[:3]
        np.testing.assert_allclose(raw[:, column], coefficients[:3] - grand, rtol=1e-8, atol=1e-9)
        residual = y[:, column] - design @ coefficients
        np.testing.assert_allclose(found.spread[column], np.sqrt(residual @ residual / (len(site) - 4)))


def test_shrinking_is_the_posterior_mean_by_integration():
    rng = np.random.default_rng(1)
    raw, noise, spread = rng.normal(size=(1, 50)) * 2, np.array([0.4]), rng.uniform(0.5, 2, 50)
    effects, _ = shrunk(raw, noise, spread)
    tau = max(np.mean((raw / spread) ** 2) - 0.4, 0)
    grid = np.linspace(-30, 30, 60_001)
    for j in range(50):
        z = raw[0, j] / spread[j]
        posterior = np.exp(-((z - grid) ** 2) / (2 * 0.4) - grid**2 / (2 * tau))
        np.testing.assert_allclose(effects[0, j], spread[j] * (grid @ posterior) / posterior.sum(), atol=1e-6)


def test_a_new_site_of_many_slides_is_believed_and_one_of_few_less():
    rng = np.random.default_rng(2)
    mean, spread, shift = np.zeros(300), np.ones(300), rng.normal(size=300)
    many, kept_many = new_site_effect(shift + rng.normal(size=(50, 300)), mean, spread, 100)
    few, kept_few = new_site_effect(shift + rng.normal(size=(1, 300)), mean, spread, 100)
    assert kept_many > 0.9 > kept_few > 0.3
    assert np.linalg.norm(many - shift) < np.linalg.norm(few - shift)


def test_a_column_in_which_nothing_varies_neither_divides_by_zero_nor_moves():
    y, site, *_ = planted(d=5)
    y[:, 2] = 4
    found = site_effects(y, site)
    assert np.isfinite(found.effects).all()
    np.testing.assert_allclose(found.effects[:, 2], 0, atol=1e-12)


@pytest.mark.parametrize(
    ("site", "protected", "sentence"),
    [
        ([0, 0, 0, 1, 1, 1], [[0], [0], [0], [1], [1], [1]], "cannot be told apart"),
        ([0, 1, 2, 3], None, "too few to tell sites from slides"),
    ],
)
def test_what_cannot_be_told_apart_is_refused(site, protected, sentence):
    y = np.random.default_rng(0).normal(size=(len(site), 3))
    with pytest.raises(InputError, match=sentence):
        site_effects(y, np.array(site), None if protected is None else np.array(protected, float))


def test_protected_columns_that_say_the_same_count_once():
    y, site, label, *_ = planted()
    once, twice = site_effects(y, site, label), site_effects(y, site, np.concatenate([label, 1 - label], 1))
    np.testing.assert_allclose(once.effects, twice.effects)

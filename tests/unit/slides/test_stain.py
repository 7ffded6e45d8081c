"""Stains: planted ones come back, normalised pixels have the reference's, and slides without two stains are told apart."""

import numpy as np
import pytest

from panther.errors import InputError
from panther.slides.stain import (
    FAINT,
    REFERENCE,
    REFERENCE_STRENGTH,
    WHITE,
    NotStained,
    fit_slide,
    fit_stains,
)

HE = np.array([[0.65, 0.70, 0.29], [0.27, 0.90, 0.35]])
HE /= np.linalg.norm(HE, axis=1, keepdims=True)


def painted(vectors, amounts):
    """Pixels (n, 1, 3) with these amounts (n, 2) of two stains."""
    return np.rint(np.clip((WHITE + 1) * np.exp(-amounts @ vectors) - 1, 0, 255)).astype(np.uint8)[:, None]


def tissue(seed=0, n=40_000):
    """Nuclei with much haematoxylin, stroma with eosin, all that is between, and glass."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(4, n, p=[0.3, 0.4, 0.2, 0.1])
    h = np.choose(kind, [rng.uniform(0.6, 1.6, n), rng.uniform(0, 0.02, n), rng.uniform(0.2, 1, n), np.zeros(n)])
    e = np.choose(kind, [rng.uniform(0, 0.02, n), rng.uniform(0.5, 1.1, n), rng.uniform(0.2, 1, n), np.zeros(n)])
    return np.stack([h, e], 1)


def degrees(a, b):
    return np.degrees(np.arccos(np.clip(a @ b / np.linalg.norm(a) / np.linalg.norm(b), -1, 1)))


@pytest.mark.parametrize("seed", range(3))
def test_planted_stains_come_back(seed):
    rng = np.random.default_rng(seed)
    vectors = HE + rng.uniform(-0.04, 0.04, HE.shape)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    actual = fit_stains(painted(vectors, tissue(seed)))
    assert [degrees(a, b) < 3 for a, b in zip(np.array(actual.vectors), vectors, strict=True)] == [True, True]
    np.testing.assert_allclose(actual.strength, np.percentile(tissue(seed), 99, axis=0), rtol=0.1)


def test_normalised_slides_of_two_laboratories_look_the_same():
    amounts = tissue()
    other = np.array([[0.55, 0.75, 0.38], [0.16, 0.88, 0.45]])
    other /= np.linalg.norm(other, axis=1, keepdims=True)
    here, there = painted(HE, amounts), painted(other, amounts * [1.3, 0.8])
    before = np.abs(here.astype(int) - there).mean()
    after = np.abs(fit_stains(here)(here).astype(int) - fit_stains(there)(there)).mean()
    assert after < before / 5


def test_normalised_pixels_have_the_stains_of_the_reference():
    pixels = painted(HE, tissue())
    again = fit_stains(fit_stains(pixels)(pixels))
    for actual, wanted in zip(np.array(again.vectors), REFERENCE, strict=True):
        assert degrees(actual, wanted) < 3
    np.testing.assert_allclose(again.strength, REFERENCE_STRENGTH, rtol=0.1)


def test_it_is_the_papers_recipe_in_double_precision():
    """Singular vectors of the densities, extreme angles in their plane, amounts by least squares: written down once more."""
    pixels = painted(HE, tissue())
    density = -np.log((pixels.reshape(-1, 3).astype(float) + 1) / (WHITE + 1))
    stained = density[(density > FAINT).all(1)]
    _, _, rows = np.linalg.svd(stained - stained.mean(0), full_matrices=False)
    plane = np.array([row if row @ stained.mean(0) > 0 else -row for row in rows[:2]])
    angle = np.arctan2(stained @ plane[1], stained @ plane[0])
    both = np.array([np.cos(a) * plane[0] + np.sin(a) * plane[1] for a in np.percentile(angle, [1, 99])])
    both = both[np.argsort(-both[:, 0])]
    actual = fit_stains(pixels)
    np.testing.assert_allclose(actual.vectors, both, atol=1e-5)
    amounts = np.linalg.lstsq(both.T, stained.T, rcond=None)[0]
    np.testing.assert_allclose(actual.strength, np.percentile(amounts, 99, axis=1), rtol=1e-4)
    own_part = np.linalg.lstsq(both.T, density.T, rcond=None)[0]
    scaled = own_part * (REFERENCE_STRENGTH / np.percentile(amounts, 99, axis=1))[:, None]
    light = np.clip(np.rint((WHITE + 1) * np.exp(-REFERENCE.T @ scaled) - 1), 0, 255).T
    assert np.abs(actual(pixels).reshape(-1, 3).astype(int) - light).max() <= 1


@pytest.mark.parametrize(
    ("pixels", "sentence"),
    [
        (np.full((200, 200, 3), 244, np.uint8), "almost nothing in its patches is stained"),
        (np.zeros((200, 200, 3), np.uint8), "almost nothing"),
        (painted(HE, np.column_stack([np.linspace(0.4, 1.5, 20_000), np.zeros(20_000)])), "one colour|one stain"),
    ],
)
def test_a_slide_without_two_stains_is_told_as_such(pixels, sentence):
    with pytest.raises(NotStained, match=sentence):
        fit_stains(pixels)


@pytest.mark.parametrize("pen", [(20, 120, 40), (20, 30, 160), (190, 20, 30), (15, 15, 15)])
def test_a_pen_over_a_tenth_of_the_tissue_does_not_turn_the_stains(pen):
    pixels = painted(HE, tissue())
    marked = pixels.copy()
    marked[::10] = np.clip(np.array(pen) + np.random.default_rng(0).normal(size=(4000, 1, 3)) * 5, 0, 255)
    for with_pen, without in zip(fit_stains(marked).vectors, fit_stains(pixels).vectors, strict=True):
        assert degrees(np.array(with_pen), np.array(without)) < 2


def test_damaged_patches_are_passed_over_in_the_sample():
    pixels = painted(HE, tissue(n=64 * 64)).reshape(64, 64, 3)
    seen = []

    def read(place):
        seen.append(tuple(place))
        if place[0] % 2:
            raise InputError("damaged")
        return pixels

    places = np.array([(i, 0) for i in range(1000)])
    assert fit_slide("macenko", read, places) == fit_stains(np.tile(pixels[::4, ::4], (1, 500, 1)))
    assert len(seen) == 64
    with pytest.raises(NotStained):
        fit_slide("macenko", read, places[:0])

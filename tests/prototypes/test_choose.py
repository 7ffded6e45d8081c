"""Choosing C."""

import numpy as np
import pytest
import torch

from panther.errors import InputError
from panther.prototypes import KMeansSettings
from panther.prototypes.choose import choose_c, parse_range
from panther.types import Bag

FAST = KMeansSettings(sample=6000, restarts=3)


def cohort(tissues, d=24, slides=12, n=400, separation=2.0, seed=0):
    rng = np.random.default_rng(seed)
    centres = rng.normal(0, separation, (tissues, d))
    return [
        Bag(
            f"s{i}",
            torch.tensor(
                centres[rng.choice(tissues, n, p=rng.dirichlet(np.ones(tissues)))] + rng.normal(size=(n, d))
            ).float(),
        )
        for i in range(slides)
    ]


@pytest.mark.parametrize("tissues", [4, 7, 11])
def test_the_true_number_of_well_separated_tissues_is_found(tissues):
    choice = choose_c(cohort(tissues), 2, 20, FAST)
    assert abs(choice.recommended - tissues) <= 1
    assert not choice.still_rising
    assert f"C = {choice.recommended}" in choice.sentence
    found = next(c for c in choice.candidates if c.n_prototypes == choice.recommended)
    assert found.stability_halves > 0.95
    assert found.centroid_agreement > 0.95


def test_a_likelihood_that_still_rises_is_said_and_not_called_an_optimum():
    choice = choose_c(cohort(12), 2, 6, FAST)
    assert choice.still_rising
    assert "not an optimum" in choice.sentence


def test_the_same_seed_gives_the_same_choice():
    bags = cohort(4, slides=6)
    assert choose_c(bags, 2, 8, FAST) == choose_c(bags, 2, 8, FAST)


def test_one_slide_is_halved_by_patches():
    assert abs(choose_c(cohort(4, slides=1, n=3000), 2, 9, FAST).recommended - 4) <= 1


@pytest.mark.parametrize("text", ["8", "a:b", "3:4:5", ""])
def test_a_range_that_is_none_is_refused(text):
    with pytest.raises(InputError, match="range"):
        parse_range(text)


def test_an_empty_range_or_too_few_patches_are_refused():
    with pytest.raises(InputError, match="empty"):
        choose_c(cohort(3), 9, 4, FAST)
    with pytest.raises(InputError, match="too few"):
        choose_c(cohort(3, slides=2, n=20), 4, 16, FAST)

"""The prototypes' colours: what their rule gives, and told apart by every eye."""

import sys
from pathlib import Path

import numpy as np
import pytest

from panther.explain.palette import OKABE_ITO, PALETTE, colour, rgb_values


@pytest.fixture(scope="module")
def rule():
    folder = str(Path(__file__).parents[3] / "docs")
    sys.path.insert(0, folder)
    try:
        import make_palette

        yield make_palette
    finally:
        sys.path.remove(folder)


def test_the_palette_is_what_its_rule_gives_and_a_shorter_one_is_its_beginning(rule):
    assert rule.generate(64) == PALETTE
    assert rule.generate(20) == PALETTE[:20]
    assert PALETTE[:7] == OKABE_ITO
    assert len(set(PALETTE)) == 64


def test_colours_begin_anew_after_the_last():
    assert [colour(c) for c in (0, 63, 64, 130)] == [PALETTE[0], PALETTE[63], PALETTE[0], PALETTE[2]]


@pytest.mark.parametrize(("count", "least"), [(16, 0.07), (32, 0.05), (64, 0.035)])
def test_no_two_colours_look_alike_to_any_eye(rule, count, least):
    lab = rule.oklab(rgb_values(PALETTE[:count]))
    between = rule.difference(lab[:, :, None], lab[:, None])  # about 0.02 is just noticed
    assert between[~np.eye(count, dtype=bool)].min() > least

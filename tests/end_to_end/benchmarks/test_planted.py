"""Slides with a planted signal: classes differ in the signal only."""

import csv
import sys
from pathlib import Path

import numpy as np
import pytest

from panther.errors import InputError
from panther_demo.truth import read_mask

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
from _planted_arrangements import with_guests, with_needle
from _planted_bank import USUAL, Bank
from planted import TASKS, write_planted

sys.path.pop(0)  # other benchmarks have the names of rooms

SHARES = np.array([0.45, 0.35, 0.15, 0.05])
HOST, BESIDE, GUEST = 0, 1, 2


def sides(grid: np.ndarray, a: int, b: int) -> int:
    """Sides that cells of a and cells of b share, counted one by one."""
    found = 0
    for row, column in np.ndindex(grid.shape):
        for other in ((row + 1, column), (row, column + 1)):
            if other[0] < grid.shape[0] and other[1] < grid.shape[1]:
                found += {(grid[row, column], grid[other])} <= {(a, b), (b, a)}
    return found


def guests(kind: str, seed: int = 0):
    return with_guests(np.random.default_rng(seed), 600, SHARES, GUEST, HOST, kind)


@pytest.mark.parametrize("seed", range(3))
def test_infiltrated_and_excluded_slides_have_the_same_patches_and_other_neighbours(seed):
    inside, outside = guests("infiltrated", seed), guests("excluded", seed)
    wanted = np.rint(SHARES * 600)
    for found in (inside, outside):
        assert np.abs(np.bincount(found.tissue, minlength=4) - wanted).max() <= 2
    assert sides(inside.grid(), HOST, GUEST) > 1.5 * sides(outside.grid(), HOST, GUEST)


@pytest.mark.parametrize(("share", "count"), [(0.003, 3), (0.01, 10), (0.03, 30), (0.0, 0), (1e-6, 1)])
def test_a_needle_has_its_share_of_the_patches_at_least_one_and_lies_in_one_place(share, count):
    found = with_needle(np.random.default_rng(1), 1000, SHARES[:3], 3, share)
    lesion = found.cells[found.tissue == 3]
    assert len(lesion) == count
    if count:
        assert np.ptp(lesion, axis=0).max() <= 2 * np.ceil(np.sqrt(count)) + 1


def test_a_bank_is_read_as_it_was_written_and_its_halves_share_no_tile(tmp_path):
    x = np.arange(24, dtype=np.float32).reshape(8, 3)
    Bank({USUAL: x, "lab0": x + 1}, np.repeat([0, 1], 4), ("a", "b")).save(tmp_path / "bank.npz")
    bank = Bank.load(tmp_path / "bank.npz")
    assert bank.names == ("a", "b")
    assert np.array_equal(bank.features["lab0"], x + 1)
    halves = [set(bank.rows_of(1, half)) for half in (0, 1)]
    assert not halves[0] & halves[1]
    assert halves[0] | halves[1] == {4, 5, 6, 7}
    dealt = bank.dealt(2, np.random.default_rng(0))
    assert all(np.array_equal(part.features["lab0"], part.features[USUAL] + 1) for part in dealt)
    assert all(np.bincount(part.tissue).tolist() == [2, 2] for part in dealt)
    tiles = np.concatenate([part.features[USUAL] for part in dealt])
    assert sorted(map(tuple, tiles)) == sorted(map(tuple, x))
    with pytest.raises(InputError, match="no such bank"):
        Bank.load(tmp_path / "missing.npz")


def test_a_planted_cohort_is_written_and_its_truth_is_what_its_label_says(tmp_path):
    write_planted(tmp_path, "needle-3", patients=2, patches=34)
    with (tmp_path / "cohort.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["label"] for row in rows} == set(TASKS["needle-3"].classes)
    for row in rows:
        assert (tmp_path / "slides" / f"{row['slide_id']}.tif").is_file()
        mask = read_mask(tmp_path / "truth" / f"{row['slide_id']}.png")
        assert (mask == 1).any() == (row["label"] == "metastasis")  # 1: glandular tumour
    with pytest.raises(InputError, match="no planted task"):
        write_planted(tmp_path, "haystack")

"""The even sample: equal chances, a fixed size, every piece its share; its standard error on random fields."""

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter, label

from panther.statistics.even_sample import draw_even, hilbert, order_along_curve, standard_error


def smooth(rng, side, scale):
    noise = rng.normal(size=(side, side))
    noise = gaussian_filter(noise, scale, mode="wrap") if scale else noise
    return (noise - noise.mean()) / noise.std()


def tissue(rng, side=80):
    """Corners (N, 2) of patches of 256 pixels of a ragged piece, row by row."""
    rows, columns = np.nonzero(smooth(rng, side, side / 8) > -0.3)
    return np.stack([columns, rows], 1) * 256


def membership(rng, coords, kind):
    """Soft or hard membership (N, 1) of the patches."""
    length, share = {
        "white": (0, 0.3),
        "regions": (5, 0.3),
        "coherent": (12, 0.3),
        "mixed": (5, 0.3),
        "soft": (5, 0.1),
    }[kind]
    cells = coords // 256
    z = smooth(rng, int(cells.max()) + 1, length)[cells[:, 1], cells[:, 0]]
    high = z > np.quantile(z, 1 - share)
    if kind == "soft":
        return 1 / (1 + np.exp(-3 * (z - np.quantile(z, 1 - share))))[:, None]
    if kind == "mixed":
        return (rng.random(len(z)) < np.where(high, 0.7, 0.05)).astype(float)[:, None]
    return high.astype(float)[:, None]


def test_the_curve_steps_from_cell_to_neighbouring_cell():
    cells = np.stack(np.meshgrid(np.arange(32), np.arange(32)), -1).reshape(-1, 2)
    along = cells[np.argsort(hilbert(cells))]
    assert (np.abs(np.diff(along, axis=0)).sum(1) == 1).all()


@pytest.mark.parametrize(("total", "count"), [(37, 25), (600, 150), (41, 9), (10, 10), (5, 3)])
def test_a_sample_has_its_size_and_every_patch_the_same_chance(total, count):
    draws = [draw_even(total, count, seed) for seed in range(4000)]
    assert all(len(np.unique(drawn)) == count and drawn.min() >= 0 and drawn.max() < total for drawn in draws)
    chance = np.bincount(np.concatenate(draws), minlength=total) / len(draws)
    assert np.abs(chance - count / total).max() < 5 * np.sqrt(0.25 / len(draws))
    assert np.array_equal(draws[3], draw_even(total, count, 3))


@pytest.mark.parametrize("total", [1000, 1003])
def test_a_sample_contains_the_one_that_it_grew_from(total):
    first = draw_even(total, 77, 5)
    for factor in (2, 3, 12):
        grown = draw_even(total, 77 * factor, 5, first)
        assert np.isin(first, grown).all()
        assert len(np.unique(grown)) == 77 * factor


def test_the_order_of_the_input_does_not_matter():
    rng = np.random.default_rng(0)
    coords = tissue(rng)
    shuffled = coords[rng.permutation(len(coords))]
    assert np.array_equal(coords[order_along_curve(coords, 256)], shuffled[order_along_curve(shuffled, 256)])
    assert len(order_along_curve(np.empty((0, 2), np.int64), 256)) == 0


@pytest.mark.parametrize("seed", range(5))
def test_every_connected_piece_gets_its_share_within_two_patches(seed):
    rng = np.random.default_rng(seed)
    cells = np.argwhere(smooth(rng, 60, 2) > 0.4)[:, ::-1]
    grid = np.zeros((60, 60))
    grid[cells[:, 0], cells[:, 1]] = 1
    pieces = label(grid, np.ones((3, 3)))[0][cells[:, 0], cells[:, 1]]
    along = pieces[order_along_curve(cells, 1)]
    assert np.count_nonzero(np.diff(along)) == pieces.max() - 1  # one piece after the other
    for fraction in (0.05, 0.3):
        count = round(fraction * len(cells))
        drawn = np.bincount(along[draw_even(len(cells), count, seed)], minlength=pieces.max() + 1)
        assert np.abs(drawn - count / len(cells) * np.bincount(along))[1:].max() < 2


def covered(kinds, fractions, worlds, draws):
    """Coverage of the 95 % interval per kind of field and fraction, and rms errors over those of uniform samples."""
    cover, ratio = {}, {}
    for kind in kinds:
        for fraction in fractions:
            inside, errors, uniform = [], [], []
            for world in range(worlds):
                rng = np.random.default_rng([world, 7])
                coords = tissue(rng)
                values = membership(rng, coords, kind)[order_along_curve(coords, 256)]
                total, count = len(values), round(fraction * len(values))
                for draw in range(draws):
                    part = values[draw_even(total, count, 1000 * world + draw)]
                    off = part.mean() - values.mean()
                    errors.append(off)
                    inside.append(abs(off) <= 1.96 * standard_error(part, total)[0])
                    uniform.append(values[rng.choice(total, count, replace=False)].mean() - values.mean())
            cover[kind, fraction] = np.mean(inside)
            ratio[kind, fraction] = np.sqrt(np.mean(np.square(errors)) / np.mean(np.square(uniform)))
    return cover, ratio


def test_intervals_cover_and_coherent_tissue_has_smaller_errors_than_a_uniform_sample():
    cover, ratio = covered(("white", "coherent"), (0.1,), 30, 10)
    assert all(0.91 < value < 0.985 for value in cover.values())
    assert 0.85 < ratio["white", 0.1] < 1.15
    assert ratio["coherent", 0.1] < 0.5


@pytest.mark.slow
def test_intervals_cover_on_all_fields_and_fractions():
    cover, ratio = covered(("white", "regions", "coherent", "mixed", "soft"), (0.02, 0.05, 0.1, 0.25, 0.5), 100, 10)
    assert 0.93 < np.mean(list(cover.values())) < 0.97
    assert all(0.91 < value < 0.985 for value in cover.values())
    assert max(ratio.values()) < 1.1


def test_the_error_of_all_patches_is_zero_and_that_of_two_is_not_known():
    values = np.random.default_rng(0).random((20, 3))
    assert (standard_error(values, 20) == 0).all()
    assert np.isnan(standard_error(values[:2], 20)).all()
    assert (standard_error(np.ones((20, 3)), 100) == 0).all()

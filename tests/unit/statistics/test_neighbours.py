"""Neighbouring patches: hand-made grids, brute force, labelled pictures, and what must not matter."""

import itertools

import numpy as np
import pytest
import torch
from scipy import ndimage

from panther.errors import InputError
from panther.patches import Places
from panther.statistics import neighbours
from panther.statistics.neighbours import PRIOR, Neighbourhood, neighbourhood, side_by_side

pytestmark = pytest.mark.usefixtures("kernel")

STEP = 256


def grid(rows: int, columns: int, step: int = STEP, offset: tuple[int, int] = (1000, 333)) -> np.ndarray:
    return np.array([(offset[0] + x * step, offset[1] + y * step) for y in range(rows) for x in range(columns)])


def at(coords: np.ndarray, step: float = STEP, lengths: tuple[int, ...] | None = None) -> Places:
    return Places(np.asarray(coords, float), step, lengths or (len(coords),))


def brute_pairs(coords: np.ndarray, step: float = STEP, corners: bool = False) -> set[tuple[int, int]]:
    wanted = [[0, 1], [1, 1]] if corners else [[0, 1]]
    near = lambda a, b: any(sorted(np.abs(a - b) / step) == pytest.approx(w, abs=0.05) for w in wanted)  # noqa: E731
    return {(i, j) for i, j in itertools.combinations(range(len(coords)), 2) if near(coords[i], coords[j])}


def pairs_of(coords: np.ndarray, step: float = STEP, corners: bool = False) -> set[tuple[int, int]]:
    """Pairs of patches at different places."""
    beside = side_by_side(coords, step, corners=corners)
    patch = np.argsort(beside.place)
    found = {(p, e) for p, row in enumerate(beside.ahead) for e in row.tolist() if e < len(beside.ahead)}
    assert len(found) == beside.pairs
    return {(min(patch[[a, b]]), max(patch[[a, b]])) for a, b in found}


def assert_same(one: Neighbourhood, other: Neighbourhood) -> None:
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


@pytest.fixture
def tissue() -> np.ndarray:
    rng = np.random.default_rng(0)
    coords = grid(9, 7)
    return rng.permutation(coords[rng.random(len(coords)) < 0.7])


@pytest.fixture
def q(tissue: np.ndarray) -> np.ndarray:
    return np.random.default_rng(1).dirichlet(np.ones(4) * 0.5, len(tissue))


@pytest.mark.parametrize("corners", [False, True], ids=["sides", "corners"])
def test_pairs_are_those_of_a_loop_also_with_gaps(
    monkeypatch: pytest.MonkeyPatch, tissue: np.ndarray, corners: bool
) -> None:
    assert pairs_of(tissue, corners=corners) == brute_pairs(tissue, corners=corners)
    monkeypatch.setattr(neighbours, "DENSE", 0)
    monkeypatch.setattr(neighbours, "TABLE", 0)  # sorted, where there is no table of all cells
    assert pairs_of(tissue, corners=corners) == brute_pairs(tissue, corners=corners)


def test_outlines_with_separate_grids_touch_within_themselves(tissue: np.ndarray) -> None:
    for off in ([50_077, 31], [50_000 + 128, 128], [9 * 256 + 4096, 255]):
        both, n = np.concatenate([tissue, tissue + np.array(off)]), len(tissue)
        expected = brute_pairs(tissue)
        assert pairs_of(both) == expected | {(a + n, b + n) for a, b in expected}


def test_rounded_steps_and_shaking_coordinates_are_one_grid(tissue: np.ndarray) -> None:
    micrometres = np.round((tissue - 1000) / STEP * 113.7, 1)
    assert pairs_of(micrometres, 113.7) == brute_pairs(tissue)
    shaken = tissue + np.random.default_rng(2).integers(-20, 21, tissue.shape)
    assert pairs_of(shaken) == brute_pairs(tissue)


def test_a_row_does_not_run_on_into_the_next() -> None:
    for corners in (False, True):
        for coords in ([[512, 0], [0, 256]], [[512, 256], [0, 256]], [[0, 0], [512, 0]]):
            assert pairs_of(np.array(coords), corners=corners) == set()


def test_distant_pieces_are_found_without_a_table_of_all_cells(tissue: np.ndarray) -> None:
    far = tissue + np.array([4_000_000 * STEP, 3_000_000 * STEP])
    pairs, n = brute_pairs(tissue), len(tissue)
    assert pairs_of(np.concatenate([tissue, far])) == pairs | {(a + n, b + n) for a, b in pairs}


def test_few_patches_are_accepted_and_invalid_steps_refused() -> None:
    assert pairs_of(np.zeros((1, 2))) == set()
    assert side_by_side(np.zeros((0, 2)), STEP).pairs == 0
    for step in (0, -1, np.nan, np.inf):
        with pytest.raises(InputError, match="not the distance of two patches"):
            side_by_side(np.zeros((2, 2)), step)
    with pytest.raises(InputError, match="more than a slide has"):
        side_by_side(np.array([[0, 0], [1e12, 0]]), 1)
    with pytest.raises(InputError, match="3 patches but coordinates of 2"):
        neighbourhood(np.eye(3), at(np.zeros((2, 2))))


def brute_force(q: np.ndarray, coords: np.ndarray, corners: bool) -> tuple[np.ndarray, np.ndarray]:
    """Touches by a loop over pairs, and their mean over shuffled slides by a loop over all pairs of patches."""
    count, pairs = len(q), brute_pairs(coords, corners=corners)
    touches, expected = np.zeros((2, q.shape[1], q.shape[1]))
    for n, m in pairs:
        touches += np.outer(q[n], q[m]) + np.outer(q[m], q[n])
    for n, m in itertools.permutations(range(count), 2):
        expected += np.outer(q[n], q[m]) * 2 * len(pairs) / (count * (count - 1))
    return touches, expected


@pytest.mark.parametrize("corners", [False, True], ids=["sides", "corners"])
def test_touches_are_those_of_a_loop(tissue: np.ndarray, q: np.ndarray, corners: bool) -> None:
    found = neighbourhood(q, at(tissue), corners=corners)
    touches, expected = brute_force(q, tissue, corners)
    np.testing.assert_allclose(found.touches, touches)
    np.testing.assert_allclose(found.expected, expected)
    np.testing.assert_allclose(found.enrichment(), np.log((touches + PRIOR) / (expected + PRIOR)))
    np.testing.assert_allclose(found.mass, q.sum(0))
    assert float(found.touches.sum()) == pytest.approx(float(found.expected.sum()))


def test_shuffled_slides_touch_as_expected_on_average(tissue: np.ndarray, q: np.ndarray) -> None:
    rng = np.random.default_rng(3)
    drawn = [neighbourhood(q[rng.permutation(len(q))], at(tissue)) for _ in range(400)]
    touches = np.stack([np.asarray(one.touches) for one in drawn])
    error = touches.std(0) / np.sqrt(len(drawn))
    assert (np.abs(touches.mean(0) - np.asarray(drawn[0].expected)) < 4 * error).all()


def test_hard_labels_are_counted_as_in_a_picture() -> None:
    picture = np.random.default_rng(4).integers(0, 4, (13, 17))
    found = neighbourhood(np.eye(4)[picture.ravel()], at(grid(13, 17)))
    counted = np.zeros((4, 4))
    for left, right in ((picture[:, :-1], picture[:, 1:]), (picture[:-1], picture[1:])):
        np.add.at(counted, (left.ravel(), right.ravel()), 1)
    np.testing.assert_array_equal(found.touches, counted + counted.T)
    np.testing.assert_array_equal(found.regions, [ndimage.label(picture == c)[1] for c in range(4)])
    np.testing.assert_array_equal(found.likeliest, np.bincount(picture.ravel()))
    joined = neighbourhood(np.eye(4)[picture.ravel()], at(grid(13, 17)), corners=True)
    np.testing.assert_array_equal(joined.regions, [ndimage.label(picture == c, np.ones((3, 3)))[1] for c in range(4)])


def test_a_chessboard_and_two_halves_by_hand() -> None:
    chess = np.eye(2)[[(x + y) % 2 for y in range(4) for x in range(4)]]
    halves = np.eye(2)[[int(x >= 2) for _ in range(4) for x in range(4)]]
    mixed, apart = neighbourhood(chess, at(grid(4, 4))), neighbourhood(halves, at(grid(4, 4)))
    np.testing.assert_array_equal(mixed.touches, [[0, 24], [24, 0]])
    np.testing.assert_array_equal(apart.touches, [[20, 4], [4, 20]])
    # two of 16 patches are alike in 7 of 15 cases
    np.testing.assert_allclose(mixed.expected, 48 * np.array([[7, 8], [8, 7]]) / 30)
    np.testing.assert_allclose(apart.enrichment()[0, 1], np.log((4 + PRIOR) / (12.8 + PRIOR)))
    np.testing.assert_array_equal(mixed.regions, [8, 8])
    np.testing.assert_array_equal(apart.regions, [1, 1])
    np.testing.assert_allclose(apart.region_number(), np.log1p(1000 / 1016))
    np.testing.assert_allclose(apart.region_size(), np.log(18 / 11))
    np.testing.assert_allclose(mixed.border(), 24 / 34)
    np.testing.assert_allclose(apart.border(), 4 / 34)


def test_slides_of_a_patient_add_up_and_do_not_touch(tissue: np.ndarray, q: np.ndarray) -> None:
    n = 20
    both = neighbourhood(q, at(tissue, lengths=(n, len(q) - n)))
    alone = neighbourhood(q[:n], at(tissue[:n])), neighbourhood(q[n:], at(tissue[n:]))
    assert_same(both, alone[0].merge(alone[1]))
    one = neighbourhood(q, at(tissue))
    twice = neighbourhood(np.concatenate([q, q]), at(np.concatenate([tissue, tissue]), lengths=(len(q), len(q))))
    assert_same(twice, one.merge(one))


def test_order_position_and_size_of_the_grid_do_not_matter(tissue: np.ndarray, q: np.ndarray) -> None:
    order = np.random.default_rng(5).permutation(len(tissue))
    one = neighbourhood(q, at(tissue))
    assert_same(one, neighbourhood(q[order], at(tissue[order])))
    assert_same(one, neighbourhood(q, at(tissue + np.array([2**40, -(2**30)]))))
    assert_same(one, neighbourhood(q, at(tissue / STEP, 1.0)))
    assert_same(one, neighbourhood(q, at(tissue[:, ::-1])))  # rows for columns


def test_blocks_of_places_add_up(monkeypatch: pytest.MonkeyPatch, tissue: np.ndarray, q: np.ndarray) -> None:
    one = neighbourhood(q, at(tissue))
    monkeypatch.setattr(neighbours, "BLOCK", 7)
    assert_same(one, neighbourhood(q, at(tissue)))
    monkeypatch.setattr(neighbours, "DENSE", 0)
    monkeypatch.setattr(neighbours, "TABLE", 0)
    assert_same(one, neighbourhood(q, at(tissue)))


def test_duplicate_patches_count_once_in_any_order(tissue: np.ndarray, q: np.ndarray) -> None:
    one = neighbourhood(q, at(tissue))
    assert_same(one, neighbourhood(np.concatenate([q, q]), at(np.concatenate([tissue, tissue]))))
    other = np.roll(q, 1, 1)
    mixed = neighbourhood(np.concatenate([q, other]), at(np.concatenate([tissue, tissue])))
    assert_same(mixed, neighbourhood((q + other) / 2, at(tissue)))
    assert_same(mixed, neighbourhood(np.concatenate([other, q]), at(np.concatenate([tissue, tissue]))))


def test_patches_at_random_are_neither_near_nor_far() -> None:
    rng = np.random.default_rng(2)
    q = np.eye(3)[rng.choice(3, 10_000, p=[0.6, 0.3, 0.1])]
    assert float(neighbourhood(q, at(grid(100, 100))).enrichment().abs().max()) < 0.1


def test_absent_prototypes_and_isolated_patches_are_neutral() -> None:
    lonely = np.array([[0, 0], [9000, 0], [0, 9000], [9000, 9000]])
    found = neighbourhood(np.eye(3)[[0, 1, 0, 1]], at(lonely))
    np.testing.assert_array_equal(found.enrichment(), 0)
    np.testing.assert_array_equal(found.border(), 0)
    assert found.region_number()[2] == found.region_size()[2] == 0
    one = neighbourhood(np.eye(3)[:1], at(lonely[:1]))
    assert all(bool(torch.isfinite(numbers).all()) for numbers in (one.enrichment(), one.region_size(), one.border()))


def test_a_slide_of_one_prototype_is_neutral() -> None:
    found = neighbourhood(np.eye(2)[np.zeros(63, int)], at(grid(9, 7)))
    np.testing.assert_allclose(found.enrichment(), 0, atol=1e-12)
    np.testing.assert_array_equal(found.regions, [1, 0])
    np.testing.assert_array_equal(found.border(), 0)


def test_float16_and_float32_posteriors_and_gradients(tissue: np.ndarray, q: np.ndarray) -> None:
    exact = neighbourhood(q, at(tissue)).enrichment()
    for dtype, near in ((torch.float32, 1e-6), (torch.float16, 2e-3)):
        found = neighbourhood(torch.tensor(q, dtype=dtype), at(tissue)).enrichment()
        torch.testing.assert_close(found, exact, rtol=0, atol=near)
    rows = torch.tensor(q, requires_grad=True)
    assert torch.autograd.gradcheck(lambda r: neighbourhood(r, at(tissue)).enrichment(), rows)
    assert torch.autograd.gradcheck(lambda r: neighbourhood(r, at(tissue)).border(), rows)


def test_a_patch_that_is_not_finite_propagates(tissue: np.ndarray, q: np.ndarray) -> None:
    q[3] = np.nan
    assert neighbourhood(q, at(tissue)).enrichment().isnan().all()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_counts_the_same(tissue: np.ndarray, q: np.ndarray) -> None:
    found = neighbourhood(torch.tensor(q).cuda(), at(tissue))
    assert found.touches.is_cuda
    assert_same(Neighbourhood(*(t.cpu() for t in found)), neighbourhood(q, at(tissue)))

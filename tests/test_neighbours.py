"""Neighbouring patches: hand-made grids, brute force, and what must not matter."""

import itertools

import numpy as np
import pytest

from panther.errors import InputError
from panther.statistics.neighbours import PRIOR, enrichment, neighbour_pairs, neighbourhood, touching


def grid(rows: int, columns: int, step: int = 256, offset: tuple[int, int] = (1000, 333)) -> np.ndarray:
    return np.array([(offset[0] + x * step, offset[1] + y * step) for y in range(rows) for x in range(columns)])


def brute_pairs(coords: np.ndarray, step: float) -> set[tuple[int, int]]:
    near = lambda a, b: sorted(np.abs(a - b) / step) == pytest.approx([0, 1], abs=0.05)  # noqa: E731
    return {(i, j) for i, j in itertools.combinations(range(len(coords)), 2) if near(coords[i], coords[j])}


def as_set(pairs: tuple[np.ndarray, np.ndarray]) -> set[tuple[int, int]]:
    return {(min(a, b), max(a, b)) for a, b in zip(*(side.tolist() for side in pairs), strict=True)}


@pytest.fixture
def tissue() -> np.ndarray:
    rng = np.random.default_rng(0)
    coords = grid(9, 7)
    return rng.permutation(coords[rng.random(len(coords)) < 0.7])


def test_pairs_are_those_of_a_loop_also_with_gaps(tissue: np.ndarray) -> None:
    assert as_set(neighbour_pairs(tissue, 256)) == brute_pairs(tissue, 256)


def test_outlines_with_grids_of_their_own_touch_within_themselves(tissue: np.ndarray) -> None:
    both = np.concatenate([tissue, tissue + [50_077, 31]])
    expected = brute_pairs(tissue, 256)
    n = len(tissue)
    assert as_set(neighbour_pairs(both, 256)) == expected | {(a + n, b + n) for a, b in expected}


def test_slides_of_a_patient_do_not_touch(tissue: np.ndarray) -> None:
    n, expected = len(tissue), brute_pairs(tissue, 256)
    found = as_set(neighbour_pairs(np.concatenate([tissue, tissue]), 256, [n, n]))
    assert found == expected | {(a + n, b + n) for a, b in expected}


def test_a_row_does_not_run_on_into_the_next() -> None:
    assert as_set(neighbour_pairs(np.array([[512, 0], [0, 256]]), 256)) == set()


def test_few_patches_and_a_wrong_step() -> None:
    assert as_set(neighbour_pairs(np.zeros((1, 2)), 256)) == set()
    assert as_set(neighbour_pairs(np.zeros((0, 2)), 256)) == set()
    with pytest.raises(InputError, match="not the distance of two patches"):
        neighbour_pairs(np.zeros((2, 2)), 0)


def test_touches_are_those_of_a_loop(tissue: np.ndarray) -> None:
    q = np.random.default_rng(1).dirichlet(np.ones(4), len(tissue))
    expected = np.zeros((4, 4))
    for n, m in brute_pairs(tissue, 256):
        expected += np.outer(q[n], q[m]) + np.outer(q[m], q[n])
    first, second = neighbour_pairs(tissue, 256)
    np.testing.assert_allclose(touching(q, first, second), expected)
    assert touching(q, first, second).sum() == pytest.approx(2 * len(first))


def test_a_chessboard_and_two_halves_by_hand() -> None:
    coords = grid(4, 4)
    chess = np.eye(2)[[(x + y) % 2 for y in range(4) for x in range(4)]]
    halves = np.eye(2)[[int(x >= 2) for _ in range(4) for x in range(4)]]
    pairs = neighbour_pairs(coords, 256)
    assert len(pairs[0]) == 24
    mixed, apart = neighbourhood(chess, *pairs), neighbourhood(halves, *pairs)
    np.testing.assert_allclose(mixed.enrichment, np.log([[10 / 22, 34 / 22], [34 / 22, 10 / 22]]))
    np.testing.assert_allclose(apart.enrichment, np.log([[30 / 22, 14 / 22], [14 / 22, 30 / 22]]))
    np.testing.assert_allclose(mixed.regions, np.log([9, 9]))
    np.testing.assert_allclose(apart.regions, np.log([2, 2]))
    np.testing.assert_allclose(apart.size, np.log([18 / 11, 18 / 11]))
    np.testing.assert_allclose(mixed.border, 24 / (4 * 18))
    np.testing.assert_allclose(apart.border, 4 / (4 * 18))


def test_patches_at_random_are_neither_near_nor_far() -> None:
    rng = np.random.default_rng(2)
    coords = grid(100, 100)
    q = np.eye(3)[rng.choice(3, len(coords), p=[0.6, 0.3, 0.1])]
    found = neighbourhood(q, *neighbour_pairs(coords, 256))
    assert np.abs(found.enrichment).max() < 0.1


def test_nothing_depends_on_the_order_of_patches(tissue: np.ndarray) -> None:
    rng = np.random.default_rng(3)
    q = rng.dirichlet(np.ones(3) * 0.3, len(tissue))
    order = rng.permutation(len(tissue))
    one = neighbourhood(q, *neighbour_pairs(tissue, 256))
    other = neighbourhood(q[order], *neighbour_pairs(tissue[order], 256))
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)


def test_an_absent_prototype_and_lonely_patches_say_nothing() -> None:
    q = np.eye(3)[[0, 1, 0, 1]]
    pairs = neighbour_pairs(np.array([[0, 0], [9000, 0], [0, 9000], [9000, 9000]]), 256)
    found = neighbourhood(q, *pairs)
    np.testing.assert_array_equal(found.enrichment, 0)
    assert found.regions[2] == 0
    assert enrichment(np.zeros((3, 3)), np.zeros(3), 0)[0, 0] == pytest.approx(np.log(PRIOR / PRIOR))

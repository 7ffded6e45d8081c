"""Neighbouring prototypes: counts against loops, tissue drawn by hand, and sentences."""

from itertools import permutations

import numpy as np
import pytest

from panther.explain.geometry import grid
from panther.explain.touching import COLUMNS, neighbour_rows, neighbour_sentences, no_touching, touching
from panther.statistics.neighbours import PRIOR
from panther.types import PatchSpec

SPEC = PatchSpec(size_level0=256, size=256)


def drawn(*rows):
    """Tissue drawn in digits, one per patch; a dot is no tissue."""
    found = [(x, y, int(cell)) for y, row in enumerate(rows) for x, cell in enumerate(row) if cell != "."]
    cells = np.array(found)
    return grid(256 * cells[:, :2], SPEC), cells[:, 2]


def hard(labels, count=None):
    return np.eye(count or int(labels.max()) + 1, dtype=np.float32)[labels]


def looped(cells, q):
    """Touches, one patch and one side after the other."""
    where = {tuple(cell): n for n, cell in enumerate(cells.tolist())}
    out = np.zeros((q.shape[1], q.shape[1]))
    for (x, y), n in where.items():
        for beside in ((x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)):
            if beside in where:
                out += np.outer(q[n], q[where[beside]])
    return out


def some_tissue(seed):
    rng = np.random.default_rng(seed)
    cells = rng.permutation(np.argwhere(rng.random((9, 7)) < 0.7))  # with holes, in any order
    return grid(256 * cells, SPEC), rng.dirichlet(np.full(4, 0.3), len(cells)).astype("f4")


@pytest.mark.parametrize("seed", range(4))
def test_touches_are_those_counted_patch_by_patch(seed):
    placed, q = some_tissue(seed)
    found = touching(q, placed)
    np.testing.assert_allclose(found.touches, looped(placed.cells, q), rtol=1e-5)
    assert found.expected.sum() == pytest.approx(found.touches.sum())  # shuffling makes and breaks no pair
    np.testing.assert_allclose(
        found.log_ratio(), np.log2((found.touches + PRIOR) / (found.expected + PRIOR)), rtol=1e-6
    )


def test_what_is_expected_is_the_mean_over_all_shuffles():
    placed, labels = drawn("000", "1.1", "..2")
    q = hard(labels)
    every = [looped(placed.cells, q[list(order)]) for order in permutations(range(len(q)))]
    np.testing.assert_allclose(touching(q, placed).expected, np.mean(every, 0), atol=1e-6)


def test_inside_and_beside_are_counted_by_the_neighbours_of_each_patch():
    placed, labels = drawn(
        "00000",
        "01000",  # surrounded: inside
        "00000",
        "00011",  # 3 of 4 are tumour: inside; at the edge 1 of 3 is: beside
        "00011",  # 1 of 3: beside; the corner touches none
    )
    found = touching(hard(labels), placed)
    assert found.members.tolist() == [20, 5]
    looked = [int(matrix[1, 0]) for matrix in (found.inside, found.beside)]
    # (3, 3) has two neighbours of each kind: not most of them
    assert looked == [1, 3]
    assert (np.diag(found.inside) == 0).all()
    placed, labels = drawn("0012", "0012", "0012")
    border = touching(hard(labels), placed).border()
    assert border[1].tolist() == pytest.approx([0.5, np.nan, 0.5], nan_ok=True)
    assert border[0, 1] == 1
    assert np.isnan(touching(hard(np.zeros(4, int), 2), drawn("00", "00")[0]).border()).all()


def test_slides_add_up_and_one_patch_touches_nothing():
    placed, q = some_tissue(0)
    one = touching(q, placed)
    both = no_touching(4).merge(one).merge(one)
    np.testing.assert_allclose(both.touches, 2 * one.touches)
    assert (both.inside == 2 * one.inside).all()
    assert np.isnan(no_touching(4).log_ratio()).all()
    assert neighbour_sentences(no_touching(2), ["a", "b"]) == []
    single = touching(np.ones((1, 2), "f4") / 2, grid(np.zeros((1, 2)), SPEC))
    assert single.touches.sum() == 0
    assert neighbour_sentences(single, ["a", "b"]) == []


def test_prototypes_of_different_slides_are_neither_at_chance_nor_along_each_other():
    """Posteriors leave a trace of every prototype everywhere; a thousandth of a touch says nothing."""
    rng, slides = np.random.default_rng(0), []
    for pair in ((0, 1), (2, 3)):
        placed, labels = drawn(*("".join(map(str, row)) for row in rng.choice(pair, (12, 12))))
        traces = hard(labels, 4) + 1e-6 * rng.random((len(labels), 4)).astype("f4")
        slides.append(touching(traces / traces.sum(1, keepdims=True), placed))
    found = slides[0].merge(slides[1])
    assert found.touches[0, 2] > 0
    assert np.isnan(found.log_ratio()[np.ix_([0, 1], [2, 3])]).all()
    assert np.isfinite(found.log_ratio()[[0, 2], [1, 3]]).all()
    assert neighbour_sentences(found, "abcd") == []
    assert np.isnan(slides[0].border()[2]).all()  # of one that is not there
    assert slides[0].border()[0, 1] > 0.999


def mixed_and_apart(mixed):
    """Tumour (0) with lymphocytes (1) in it or in one piece beside it, and as much stroma (2) away from both."""
    rng = np.random.default_rng(0)
    tissue = np.zeros((20, 20), int)
    if mixed:
        tissue.reshape(-1)[rng.permutation(400)[:80]] = 1
    else:
        tissue[16:] = 1
    away = np.full((20, 20), 2)
    whole = np.concatenate([tissue, away], 1)
    y, x = np.divmod(np.arange(whole.size), whole.shape[1])
    return touching(hard(whole.reshape(-1)), grid(256 * np.stack([x, y], 1), SPEC))


def test_infiltration_is_told_from_lying_beside():
    titles = ["C0 tumour", "C1 lymphocytes", "C2 stroma"]
    inside, outside = (neighbour_sentences(mixed_and_apart(mixed), titles) for mixed in (True, False))
    assert inside[0].startswith("C1 lymphocytes touches C0 tumour ")
    assert any(text.startswith("C1 lymphocytes and C2 stroma keep apart") for text in inside)
    assert outside[0].startswith("C1 lymphocytes lies along C0 tumour: ")
    assert not any(" touches " in text for text in outside)


def test_the_table_has_every_ordered_pair_and_no_nan():
    found = mixed_and_apart(True)
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in neighbour_rows(found)]
    assert [row["prototype"] + row["neighbour"] for row in rows[:4]] == ["C0C0", "C0C1", "C0C2", "C1C0"]
    assert not any(value != value for row in rows for value in row.values())
    assert rows[3]["inside"] + rows[3]["beside"] <= rows[3]["patches"] == 80
    assert rows[3]["share_of_border"] == pytest.approx(found.border()[1, 0], abs=1e-6)

"""The exact search for similar patches, against all similarities in float64."""

import numpy as np
import pytest
import torch

from panther.errors import InputError
from panther.statistics import block_rows, most_similar
from panther.types import Concatenated

DIM = 96
BLOCK = block_rows(DIM, 4, "cpu")


def oracle(x: torch.Tensor, query: torch.Tensor, k: int, leave_out: int | None = None) -> tuple[list[int], np.ndarray]:
    """All similarities in float64, sorted; equal ones by row."""
    x, q = x.double().numpy(), query.double().numpy()
    with np.errstate(invalid="ignore", divide="ignore"):
        similarity = (x @ q) / (np.linalg.norm(x, axis=1) * np.linalg.norm(q))
    ranked = np.lexsort((np.arange(len(x)), -np.round(similarity, 12)))
    order = [int(n) for n in ranked if np.isfinite(similarity[n]) and n != leave_out]
    return order[:k], similarity[order[:k]]


def check(x: torch.Tensor, query: torch.Tensor, k: int, leave_out: int | None = None) -> None:
    found, (rows, similarity) = most_similar(x, query, k, leave_out), oracle(x, query, k, leave_out)
    assert found.rows.tolist() == rows
    np.testing.assert_allclose(found.nearness, similarity, atol=1e-12)


@pytest.fixture
def rng() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_several_blocks_give_what_float64_gives(rng, dtype):
    x = torch.randn(2 * BLOCK + 77, DIM, generator=rng).to(dtype)
    check(x, x[BLOCK + 5], 12, BLOCK + 5)


def test_patches_that_float32_cannot_tell_apart_are_in_the_order_of_float64(rng):
    query = torch.randn(DIM, generator=rng).double()
    away = torch.linalg.qr(torch.stack([query, torch.randn(DIM, generator=rng).double()], 1)).Q[:, 1]
    angle = 0.5 + torch.rand(BLOCK + 900, generator=rng).double() * 1e-6  # similarities within 5e-7 of each other
    x = query + angle[:, None] * away * query.norm()
    check(x.float(), query, 25)


def test_equal_patches_come_in_the_order_of_their_rows(rng):
    x = torch.randn(BLOCK + 50, DIM, generator=rng).half()
    same = [3, 40, BLOCK - 1, BLOCK, BLOCK + 1, BLOCK + 30]  # in blocks of other lengths
    x[same] = x[3].clone()
    assert most_similar(x, x[3], 4, leave_out=40).rows.tolist() == [3, BLOCK - 1, BLOCK, BLOCK + 1]
    all_equal = x[3].expand(3 * BLOCK, -1)
    found = most_similar(all_equal, x[3], 5, leave_out=2)
    assert found.rows.tolist() == [0, 1, 3, 4, 5]
    assert (found.nearness == found.nearness[0]).all()


def test_rows_without_a_direction_are_left_out(rng):
    x = torch.randn(60, DIM, generator=rng)
    x[4], x[7, 3], x[9, 0], x[11] = 0, float("nan"), float("inf"), float("nan")
    check(x, x[20], 60, 20)
    assert not {4, 7, 9, 11, 20} & set(most_similar(x, x[20], 60, 20).rows.tolist())
    nothing = most_similar(torch.full((5, DIM), float("nan")), x[20], 3)
    assert len(nothing.rows) == len(nothing.nearness) == 0


def test_numbers_that_cannot_be_squared_in_float32_are_compared_all_the_same(rng):
    x = torch.randn(60, DIM, generator=rng)
    x[5], x[6] = x[20] * 1e30, x[20] * 1e-30
    assert set(most_similar(x, x[20], 2, 20).rows.tolist()) == {5, 6}
    assert set(most_similar(x, x[5] * 1e5, 3).rows.tolist()) == {5, 6, 20}


def test_opposite_patches_are_the_least_similar(rng):
    x = torch.randn(30, DIM, generator=rng)
    x[8] = -x[0]
    found = most_similar(x, x[0], 30, 0)
    assert found.rows[-1] == 8
    assert found.nearness[-1] == pytest.approx(-1)


def test_one_patch_or_none(rng):
    x = torch.randn(1, DIM, generator=rng)
    assert most_similar(x, x[0], 3).rows.tolist() == [0]
    assert most_similar(x, x[0], 3, leave_out=0).rows.tolist() == []
    assert most_similar(x[:0], x[0], 3).rows.tolist() == []


def test_rows_that_are_read_by_slices_only(rng):
    parts = torch.randn(BLOCK - 3, DIM, generator=rng), torch.randn(9, DIM, generator=rng)
    found = most_similar(Concatenated(parts), parts[1][2], 7)
    assert found.rows.tolist() == oracle(torch.cat(parts), parts[1][2], 7)[0]


@pytest.mark.parametrize("query", [torch.zeros(DIM), torch.full((DIM,), float("nan")), torch.full((DIM,), torch.inf)])
def test_a_query_without_a_direction_is_refused(query):
    with pytest.raises(InputError, match="nothing can be compared"):
        most_similar(torch.ones(3, DIM), query, 2)

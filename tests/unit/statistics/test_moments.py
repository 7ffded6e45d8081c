"""Mean and variance of a few weighed rows, in C and in torch, against numpy in float64."""

import numpy as np
import pytest
import torch

from panther.statistics import tail as moments
from panther.statistics.tail import weighed_moments

pytestmark = pytest.mark.usefixtures("kernel")


class Lazy:
    """Rows that are read when they are asked for."""

    def __init__(self, x: torch.Tensor) -> None:
        self.x, self.shape, self.dtype = x, x.shape, x.dtype

    def __getitem__(self, rows: slice) -> torch.Tensor:
        return self.x[rows]


@pytest.mark.parametrize("stored", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("lie", ["packed", "strided", "transposed", "lazy"])
def test_moments_are_those_of_numpy(stored: torch.dtype, lie: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    monkeypatch.setattr(moments, "block_rows", lambda *_: 7)
    x = (100 + torch.randn(60, 37)).to(stored)
    how = {"packed": x, "strided": torch.cat([x, x], 1)[:, :37], "transposed": x.T.contiguous().T, "lazy": Lazy(x)}[lie]
    index = torch.arange(1, 60, 3)
    weight = torch.rand(len(index), dtype=torch.float64)
    weight /= weight.sum()
    mean, variance = weighed_moments(how, index, weight)
    rows, w = x.double().numpy()[index], weight.numpy()
    np.testing.assert_allclose(mean, w @ rows, rtol=1e-12)
    np.testing.assert_allclose(variance, w @ (rows - w @ rows) ** 2, rtol=1e-9)


def test_one_row_has_no_variance_and_nan_is_not_hidden() -> None:
    x = torch.randn(5, 3)
    mean, variance = weighed_moments(x, torch.tensor([2]), torch.ones(1, dtype=torch.float64))
    assert torch.equal(mean.float(), x[2])
    assert not variance.any()
    x[3, 1] = torch.nan
    mean, _ = weighed_moments(x, torch.tensor([2, 3]), torch.full((2,), 0.5, dtype=torch.float64))
    assert mean.isnan().tolist() == [False, True, False]


def test_gradients_reach_rows_and_weights() -> None:
    x = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    weight = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda a, b: weighed_moments(a, torch.tensor([0, 2, 5]), b), (x, weight))

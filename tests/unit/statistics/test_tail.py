"""The tail: patches that no prototype explains, against sorting everything in float64; weighted moments against numpy."""

import numpy as np
import pytest
import torch

from mixture_bags import mixture_bag
from panther.mixture import EMSettings, fit_mixture, surprise_of
from panther.statistics import tail
from panther.statistics.tail import LEAST, MOST, surprise_edges, tail_of, weighed_moments

pytestmark = pytest.mark.usefixtures("kernel")


def fitted(x, h, edges=None):
    """Tail of a bag; by default the edges are those of the bag."""
    fit = fit_mixture(x, h, torch.ones(h.shape[1]), EMSettings(), keep_assignment=True, keep_scores=True)
    return tail_of(x, -fit.scores, fit.assignment, edges or surprise_edges(-fit.scores))


def sorted_out(x, h, edges):
    """The same by sorting all patches, in plain float64."""
    x, h = x.double().numpy(), h.double().numpy()
    distance = ((x[:, None] - h) ** 2).sum(-1)
    density = -distance / 2 - np.log(2 * np.pi) * x.shape[1] / 2 - np.log(len(h))
    top = density.max(1, keepdims=True)
    surprise = -(top[:, 0] + np.log(np.exp(density - top).sum(1)))
    q = np.exp(density - top) / np.exp(density - top).sum(1, keepdims=True)
    usual, width = edges[0], edges[1] - edges[0]
    order = np.argsort(-surprise)
    many, few = int(np.ceil(MOST * len(x))), min(LEAST, len(x))
    begin = min(max(usual, surprise[order[many - 1]]), surprise[order[few - 1]] - 0.05 * width)

    def climb(s):
        t = min(max(s, 0.0), 1.0)
        return 3 * t**2 - 2 * t**3

    weight = np.array([climb((s - begin) / width) for s in surprise])
    mean = (weight[:, None] * x).sum(0) / weight.sum()
    return {
        "share": np.mean([climb((s - usual) / width) for s in surprise]),
        "excess": (weight * (surprise - usual) / width).sum() / weight.sum(),
        "nearest": (weight[:, None] * q).sum(0) / weight.sum(),
        "mean": mean,
        "variance": (weight[:, None] * (x - mean) ** 2).sum(0) / weight.sum(),
    }


@pytest.mark.parametrize("n", [1, 4, 60, 800])
@pytest.mark.parametrize("edges", [(20.0, 26.0), (-1000.0, -900.0), (500.0, 501.0)], ids=["some", "all", "none"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
def test_the_tail_is_that_of_sorting_everything(n, edges, dtype):
    x, h = mixture_bag(n, 10, 4, separation=1.0)
    x = x.to(dtype)
    found, expected = fitted(x, h, edges), sorted_out(x, h, edges)
    for name, value in expected.items():
        np.testing.assert_allclose(getattr(found, name).numpy(), value, rtol=2e-4, atol=2e-5, err_msg=name)


def test_the_tail_is_the_few_patches_of_another_kind():
    x, h = mixture_bag(1000, 20, 4, separation=2.0)
    edges = surprise_edges(surprise_of(x, h, torch.ones(20)))
    needle = torch.full((20,), 3.0) + 0.1 * torch.randn(8, 20, generator=torch.Generator().manual_seed(0))
    found, without = fitted(torch.cat([x, h.mean(0) + needle]), h, edges), fitted(x, h, edges)
    towards = torch.nn.functional.cosine_similarity(found.mean - without.mean, h.mean(0) + 3 - without.mean, dim=0)
    assert float(towards) > 0.95  # the mean of the tail moves to where they are
    assert float(found.excess) > 2 > float(without.excess)
    assert float(found.share - without.share) == pytest.approx(8 / 1008, rel=0.02)


def test_an_atypical_slide_has_a_large_tail():
    x, h = mixture_bag(1000, 20, 4, separation=2.0)
    edges = surprise_edges(surprise_of(x, h, torch.ones(20)))
    assert float(fitted(x + 3, h, edges).share) > 0.95
    assert float(fitted(x, h, edges).share) < 0.02


def test_the_tail_is_continuous_in_the_features():
    x, h = mixture_bag(300, 6, 3, separation=1.0)
    x, h = x.double(), h.double()
    edges = surprise_edges(surprise_of(x, h, torch.ones(6)))
    outward = torch.nn.functional.normalize(x[0] - h.mean(0), dim=0)

    def largest_change(step):
        """Of any number, while one patch leaves its tissue step by step."""
        moved = (torch.cat([x[:1] + away * outward, x[1:]]) for away in torch.arange(0, 5, step))
        path = [torch.cat([torch.atleast_1d(part) for part in fitted(bag, h, edges)]) for bag in moved]
        return float(torch.stack(path).diff(dim=0).abs().max())

    assert largest_change(0.02) < 0.6 * largest_change(0.04)  # a jump would not shrink with the step


def test_gradients_reach_every_number():
    x, h = mixture_bag(120, 5, 3, separation=1.0)
    x = x.double().requires_grad_()
    edges = surprise_edges(surprise_of(x.detach(), h.double(), torch.ones(5)))

    def share_and_mean(rows):
        found = fitted(rows, h.double(), edges)
        return found.share + found.mean.sum() + found.variance.sum() + found.nearest[0] + found.excess

    (gradient,) = torch.autograd.grad(share_and_mean(x), x)
    row = int(gradient.abs().sum(1).argmax())
    step = torch.zeros_like(x)
    step[row, 2] = 1e-6
    with torch.no_grad():
        measured = (share_and_mean(x + step) - share_and_mean(x - step)) / 2e-6
    assert float(gradient[row, 2]) == pytest.approx(float(measured), rel=1e-4)


def test_order_blocks_and_equal_patches_change_nothing(monkeypatch):
    x, h = mixture_bag(500, 6, 3, separation=1.0)
    edges = surprise_edges(surprise_of(x, h, torch.ones(6)))
    whole = fitted(x, h, edges)
    shuffled = fitted(x[torch.randperm(500, generator=torch.Generator().manual_seed(0))], h, edges)
    monkeypatch.setattr(tail, "block_rows", lambda *_, **__: 2)
    for other in (shuffled, fitted(x, h, edges)):
        for a, b in zip(whole, other, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
    same = fitted(x[:1].expand(400, 6).contiguous(), h)
    torch.testing.assert_close(same.mean.float(), x[0])
    assert not same.variance.any()


class Rows:
    """Rows that can only be sliced, and how many were read."""

    def __init__(self, x: torch.Tensor) -> None:
        self.x, self.shape, self.dtype, self.read = x, x.shape, x.dtype, 0

    def __getitem__(self, rows: slice) -> torch.Tensor:
        self.read += len(self.x[rows])
        return self.x[rows]


def test_only_rows_with_a_weight_are_read_again():
    x, h = mixture_bag(2000, 6, 3, separation=1.0)
    fit = fit_mixture(x, h, torch.ones(6), keep_assignment=True, keep_scores=True)
    rows, edges = Rows(x), surprise_edges(-fit.scores)
    found = tail_of(rows, -fit.scores, fit.assignment, edges)
    assert rows.read <= MOST * 2000 + 1
    for a, b in zip(found, tail_of(x, -fit.scores, fit.assignment, edges), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("stored", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("layout", ["packed", "strided", "transposed", "lazy"])
def test_weighted_moments_are_those_of_numpy(stored, layout, monkeypatch):
    torch.manual_seed(0)
    monkeypatch.setattr(tail, "block_rows", lambda *_: 7)
    x = (100 + torch.randn(60, 37)).to(stored)
    layouts = {"packed": x, "strided": torch.cat([x, x], 1)[:, :37], "transposed": x.T.contiguous().T, "lazy": Rows(x)}
    index = torch.arange(1, 60, 3)
    weight = torch.rand(len(index), dtype=torch.float64)
    weight /= weight.sum()
    mean, variance = weighed_moments(layouts[layout], index, weight)
    rows, w = x.double().numpy()[index], weight.numpy()
    np.testing.assert_allclose(mean, w @ rows, rtol=1e-12)
    np.testing.assert_allclose(variance, w @ (rows - w @ rows) ** 2, rtol=1e-9)


def test_one_row_has_no_variance_and_nan_propagates():
    x = torch.randn(5, 3)
    mean, variance = weighed_moments(x, torch.tensor([2]), torch.ones(1, dtype=torch.float64))
    assert torch.equal(mean.float(), x[2])
    assert not variance.any()
    x[3, 1] = torch.nan
    mean, _ = weighed_moments(x, torch.tensor([2, 3]), torch.full((2,), 0.5, dtype=torch.float64))
    assert mean.isnan().tolist() == [False, True, False]

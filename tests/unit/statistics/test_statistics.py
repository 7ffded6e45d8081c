"""The streaming kernel: blocks, masks, types, and sums that add."""

import pickle
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mixture_bags import mixture_bag
from panther.errors import InputError
from panther.mixture import EMSettings, fit_mixture
from panther.statistics import NEGLIGIBLE, accumulate, blocks, first_bad_row, nearest
from panther.types import Concatenated, Ragged

pytestmark = pytest.mark.usefixtures("kernel")


def test_statistics_are_those_of_a_plain_loop():
    x, h = mixture_bag(97, 5, 3, separation=1.0)
    origin = h.mean(0)
    sums = accumulate(x, nearest(h - origin), origin).statistics
    labels = torch.stack([((row - h) ** 2).sum(1).argmin() for row in x])
    for c in range(3):
        z = (x[labels == c] - origin).double()
        assert float(sums.mass[c]) == len(z)
        torch.testing.assert_close(sums.total[c], z.sum(0), rtol=1e-5, atol=1e-4)
        torch.testing.assert_close(sums.square[c], (z**2).sum(0), rtol=1e-5, atol=1e-4)
    assert float(sums.patches) == 97


@pytest.mark.parametrize("rows", [1, 7, 64, 1000])
def test_the_size_of_blocks_changes_nothing(rows, monkeypatch):
    x, h = mixture_bag(500, 8, 4)
    whole = fit_mixture(x, h, torch.ones(8)).mixture
    monkeypatch.setattr(blocks, "block_rows", lambda *_, **__: rows)
    blocked = fit_mixture(x, h, torch.ones(8)).mixture
    for a, b in zip(whole, blocked, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_statistics_of_parts_add_up_to_those_of_the_whole():
    x, h = mixture_bag(300, 6, 3)
    origin = h.mean(0)
    whole = accumulate(x, nearest(h - origin), origin).statistics
    parts = [accumulate(part, nearest(h - origin), origin).statistics for part in x.split([50, 1, 249])]
    for a, b in zip(whole, parts[0].merge(parts[1]).merge(parts[2]), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-3)


def test_no_temporary_of_the_size_of_the_bag_is_held():
    class Endless:
        """A bag of ten million rows that only exists block by block."""

        shape, dtype, largest = (10_000_000, 4), torch.float32, 0

        def __getitem__(self, rows: slice) -> torch.Tensor:
            n = len(range(*rows.indices(self.shape[0])))
            self.largest = max(self.largest, n)
            return torch.ones(n, 4)

    bag = Endless()
    sums = accumulate(bag, nearest(torch.zeros(2, 4)), torch.zeros(4)).statistics
    assert float(sums.total.sum()) == 4e7  # float32 alone stops counting at 1.7e7
    assert bag.largest * 4 * 4 <= 2 << 20


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_features_give_what_their_widened_numbers_give(dtype):
    x, h = mixture_bag(200, 8, 3)
    x = x.to(dtype)
    half, widened = (fit_mixture(rows, h, torch.ones(8)).mixture for rows in (x, x.float()))
    assert all(torch.equal(a, b) for a, b in zip(half, widened, strict=True))


def test_padding_may_hold_anything():
    bags = [mixture_bag(n, 5, 3, seed=n)[0] for n in (4, 30, 11)]
    h = mixture_bag(1, 5, 3)[1]
    batch = torch.full((3, 30, 5), torch.nan)
    mask = torch.zeros(3, 30, dtype=torch.bool)
    for i, bag in enumerate(bags):
        batch[i, : len(bag)], mask[i, : len(bag)] = bag, True
    for settings_ in (EMSettings(), EMSettings(steps=4, tau=1.0)):
        together = fit_mixture(batch, h, torch.ones(5), settings_, mask=mask, keep_assignment=True)
        for i, bag in enumerate(bags):
            alone = fit_mixture(bag, h, torch.ones(5), settings_, keep_assignment=True)
            for a, b in zip(together.mixture, alone.mixture, strict=True):
                torch.testing.assert_close(a[i], b, rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(together.assignment[i, : len(bag)], alone.assignment, rtol=1e-4, atol=1e-5)
            # sums of float32 rows, which torch rounds differently for other shapes (seen with AMX)
            torch.testing.assert_close(together.log_likelihood[i], alone.log_likelihood, rtol=1e-6, atol=0)
            assert not together.assignment[i, len(bag) :].any()


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
def test_the_score_of_a_patch_is_its_log_density_under_the_mixture_that_em_starts_from(steps, dtype):
    x, h = mixture_bag(700, 20, 4, separation=1.0)
    x, variance = x.to(dtype), torch.rand(20) + 0.5
    fitted = fit_mixture(x, h, variance, EMSettings(steps=steps, temperature=2.0), keep_scores=True)
    parts = torch.distributions.Normal(h.double(), variance.double().sqrt()).log_prob(x.double()[:, None]).sum(-1)
    exact = parts.logsumexp(-1) - torch.tensor(4.0, dtype=torch.float64).log()
    torch.testing.assert_close(fitted.scores.double(), exact, rtol=1e-5, atol=1e-4)
    assert float(fitted.log_likelihood[0]) == pytest.approx(float(exact.sum()), rel=1e-6)
    without = fit_mixture(x, h, variance, EMSettings(steps=steps, temperature=2.0))
    assert without.scores is None
    assert all(torch.equal(a, b) for a, b in zip(fitted.mixture, without.mixture, strict=True))


def test_scores_of_padding_count_nothing():
    x, h = mixture_bag(30, 5, 3)
    batch, mask = torch.full((1, 40, 5), torch.nan), torch.arange(40)[None] < 30
    batch[0, :30] = x
    together = fit_mixture(batch, h, torch.ones(5), mask=mask, keep_scores=True)
    alone = fit_mixture(x, h, torch.ones(5), keep_scores=True)
    torch.testing.assert_close(together.scores[0, :30], alone.scores, rtol=1e-5, atol=1e-5)
    assert not together.scores[0, 30:].any()


def test_posteriors_too_small_to_matter_are_exactly_zero():
    x, h = mixture_bag(300, 40, 5, separation=1.2)
    q = fit_mixture(x, h, torch.ones(40), keep_assignment=True).assignment
    assert ((q == 0) | (q >= NEGLIGIBLE)).all()
    assert (q == 0).any()


@given(n=st.integers(1, 12), d=st.integers(1, 5), c=st.integers(1, 6), steps=st.integers(1, 3), seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_any_shape_gives_a_proper_mixture(n, d, c, steps, seed):
    x, h = mixture_bag(n, d, c, seed=seed)
    fitted = fit_mixture(x, h, torch.ones(d), EMSettings(steps=steps))
    weights, means, variances = fitted.mixture
    assert weights.shape == (c,)
    assert means.shape == variances.shape == (c, d)
    assert all(torch.isfinite(p).all() for p in fitted.mixture)
    assert (variances >= 0).all()
    assert float(weights.sum()) == pytest.approx(1, abs=1e-6)
    assert float(fitted.mass.sum()) == pytest.approx(n, rel=1e-5)


@given(shift=st.floats(-1000, 1000), seed=st.integers(0, 20))
@settings(max_examples=30, deadline=None)
def test_shifting_features_and_prototypes_together_shifts_the_means_and_nothing_else(shift, seed):
    x, h = mixture_bag(120, 6, 3, separation=1.0, seed=seed)
    x, h = x.double(), h.double()
    before, after = (fit_mixture(x + s, h + s, torch.ones(6)).mixture for s in (0.0, shift))
    torch.testing.assert_close(after.weights, before.weights, rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(after.means, before.means + shift, rtol=1e-9, atol=1e-7)
    torch.testing.assert_close(after.variances, before.variances, rtol=1e-7, atol=1e-8)


def test_an_empty_bag_is_refused():
    mask = torch.tensor([[True] * 3, [False] * 3])
    for x, real in ((torch.empty(0, 4), None), (torch.ones(2, 3, 4), mask), (Ragged(torch.ones(3, 4), (3, 0)), None)):
        with pytest.raises(InputError, match="empty"):
            accumulate(x, nearest(torch.zeros(2, 4)), torch.zeros(4), mask=real)


def test_the_first_bad_row_is_found_in_any_block(monkeypatch):
    monkeypatch.setattr(blocks, "block_rows", lambda *_, **__: 10)
    x = torch.zeros(95, 3)
    assert first_bad_row(x) is None
    x[77, 1] = torch.inf
    assert first_bad_row(x) == 77
    x[30, 2] = torch.nan
    assert first_bad_row(x) == 30


def test_bags_read_one_after_the_other_are_one_bag():
    x, _ = mixture_bag(90, 4, 3)
    joined = Concatenated((x[:20], x[20:20], x[20:83].half(), x[83:].half()))
    assert tuple(joined.shape) == (90, 4)
    expected = torch.cat([x[:20], x[20:].half().float()])
    for a, b in [(0, 90), (15, 30), (82, 84), (90, 95), (5, 5)]:
        assert torch.equal(joined[a:b], expected[a:b])


def test_the_kernel_needs_numpy_and_torch_alone():
    others = [
        "xxhash",
        "psutil",
        "h5py",
        "pandas",
        "sklearn",
        "pydantic",
        "cyclopts",
        "rich",
        "safetensors",
        "yaml",
        "anndata",
        "matplotlib",
    ]
    code = (
        "import sys; import torch, numpy\n"
        f"for name in {others}: sys.modules[name] = None  # importing it fails\n"
        "import panther.statistics, panther.mixture, panther.types\n"
        "x = torch.randn(50, 3)\n"
        "panther.mixture.fit_mixture(x, x[:2], torch.ones(3), panther.mixture.EMSettings())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_sums_travel_between_processes_as_plain_arrays_with_the_same_bytes():
    x = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
    sums = accumulate(x, nearest(x[:3]), torch.zeros(4)).statistics
    sent = pickle.dumps(sums)
    assert b"_load_from_bytes" not in sent  # torch's way
    for name, before, after in zip(sums._fields, sums, pickle.loads(sent), strict=True):
        assert torch.equal(before, after), name
        assert (before.dtype, before.shape) == (after.dtype, after.shape)
    assert torch.equal(pickle.loads(sent).merge(sums).mass, 2 * sums.mass)

"""The compiled kernel against the reference in torch."""

import ctypes
import shutil
from itertools import product
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from panther.errors import InputError
from panther.machine import allow_threads
from panther.statistics import Logits, accumulate, compiled, nearest, squared_distances
from panther.statistics.compiled import LIBRARY, load_library, suits
from panther.statistics.kernels import kernel_name
from panther.statistics.torch_kernel import accumulate_in_torch
from panther.verbs.start import doctor

missing = load_library()
needs_library = pytest.mark.skipif(isinstance(missing, str), reason=f"there is no compiled kernel: {missing}")
TYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64]


def both(x, assign, origin, **how):
    """Statistics and assignment of either kernel."""
    how = {"squares": True, "keep_assignment": True, "keep_scores": True, **how}
    assert suits(x, assign, origin)
    found, reference = accumulate(x, assign, origin, **how), accumulate_in_torch(x, assign, origin, None, **how)
    return [*found.statistics, *found[1:]], [*reference.statistics, *reference[1:]]


def logits(d, c, dtype, *, quadratic=False, common=False, scale=1.0, **how):
    linear, bias = torch.randn(d, c, dtype=dtype) * scale / d**0.5, torch.randn(1, c, dtype=dtype)
    how["common"] = -torch.rand(d, dtype=dtype) if common else None
    return Logits(linear, bias, -torch.rand(d, c, dtype=dtype) / d if quadratic else None, **how)


@needs_library
@given(
    n=st.integers(1, 700),
    d=st.integers(1, 90),
    c=st.one_of(st.integers(1, 20), st.integers(60, 140)),
    stored=st.sampled_from(TYPES),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    hard=st.booleans(),
    quadratic=st.booleans(),
    common=st.booleans(),
    squares=st.booleans(),
    temperature=st.sampled_from([1.0, 4.0, 0.3]),
    scale=st.sampled_from([0.1, 1.0, 30.0, 3000.0]),
    seed=st.integers(0, 99),
)
@settings(max_examples=250, deadline=None)
def test_any_shape_and_type_gives_what_torch_gives(
    n, d, c, stored, dtype, hard, quadratic, common, squares, temperature, scale, seed
):
    torch.manual_seed(seed)
    x = torch.randn(n, d).to(stored)
    how = {"scale": scale, "temperature": temperature, "hard": hard}
    assign = logits(d, c, dtype, quadratic=quadratic and squares, common=common, **how)
    found, reference = both(x, assign, torch.randn(d, dtype=dtype), squares=squares)
    # exp() of a large number
    accuracy = {torch.float32: 1e-5 * max(1.0, scale / temperature), torch.float64: 1e-9}[dtype]
    for a, b in zip(found, reference, strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        torch.testing.assert_close(a, b, rtol=accuracy, atol=accuracy * max(1.0, float(b.abs().max())))


@needs_library
def test_sums_are_closer_to_float64_than_torch_s_own():
    torch.manual_seed(0)
    x, origin = torch.randn(4000, 64), torch.zeros(64)
    assign = logits(64, 8, torch.float32)
    keep = {"squares": True, "keep_assignment": False, "keep_scores": False}
    in_float64 = Logits(assign.linear.double(), assign.bias.double())
    exact = accumulate_in_torch(x, in_float64, origin.double(), None, **keep).statistics
    for a, b in zip(accumulate(x, assign, origin).statistics, exact, strict=True):
        assert float(((a - b).abs() / b.abs().max()).max()) <= 1e-6


@needs_library
@pytest.mark.parametrize("dtype", TYPES)
def test_rows_may_lie_anywhere_in_memory(dtype):
    torch.manual_seed(0)
    wide = torch.randn(300, 50).to(dtype)
    views = wide[::3, :21], wide[7:, 5:26], wide.T[:21].T, wide[:, :1]
    size = torch.empty((), dtype=dtype).element_size()
    raw = torch.zeros(300 * 21 * size + 1, dtype=torch.uint8)[1:].numpy()
    raw[:] = wide[:, :21].contiguous().view(torch.uint8).flatten().numpy()
    unaligned = Unaligned(raw, dtype, (300, 21))
    for view in views:
        assign, origin = logits(view.shape[1], 5, torch.float32, hard=True), torch.zeros(view.shape[1])
        packed = accumulate(view.contiguous(), assign, origin).statistics
        for a, b in zip(accumulate(view, assign, origin).statistics, packed, strict=True):
            assert torch.equal(a, b)
    assign, origin = logits(21, 5, torch.float32), torch.zeros(21)
    found, packed = (accumulate(rows, assign, origin).statistics for rows in (unaligned, wide[:, :21]))
    assert all(torch.equal(a, b) for a, b in zip(found, packed, strict=True))


class Unaligned:
    """Rows at an odd address, as a memory map of a file has them."""

    def __init__(self, raw, dtype, shape) -> None:
        self.raw, self.dtype, self.shape = raw, dtype, shape

    def __getitem__(self, rows: slice) -> torch.Tensor:
        size, dim = torch.empty((), dtype=self.dtype).element_size(), self.shape[1]
        start, stop, _ = rows.indices(self.shape[0])
        buffer = (ctypes.c_char * ((stop - start) * dim * size)).from_address(self.raw.ctypes.data + start * dim * size)
        return torch.frombuffer(buffer, dtype=self.dtype).view(stop - start, dim)


@needs_library
@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("worst", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("where", ["one number", "one row", "a prototype", "its bias"])
def test_nan_and_infinity_propagate_as_in_torch(hard, worst, where):
    torch.manual_seed(0)
    x, assign = torch.randn(300, 20), logits(20, 5, torch.float32, hard=hard, scale=5.0, common=True)
    if where == "one number":
        x[100, 3] = worst
    elif where == "one row":
        x[100] = worst
    elif where == "a prototype":
        assign.linear[:, 2] = worst
    else:
        assign.bias[0, 2] = worst
    found, reference = both(x, assign, torch.zeros(20))
    for a, b in zip(found, reference, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-3, equal_nan=True)


@needs_library
@pytest.mark.parametrize("hard", [False, True])
def test_numbers_too_large_to_square_are_found_in_the_sums(hard, kernel):
    x = torch.randn(300, 20)
    x[100, 3] = 3e38
    sums = accumulate(x, logits(20, 5, torch.float32, hard=hard), torch.zeros(20)).statistics
    assert not torch.isfinite(sums.square[:, 3]).all()


@needs_library
def test_a_component_without_weight_gets_nothing_and_the_first_of_equals_wins():
    x, linear = torch.randn(200, 6), torch.randn(6, 1).expand(6, 4).contiguous()
    bias = torch.tensor([[-torch.inf, 0.0, 0.0, 0.0]])
    sums = accumulate(x, Logits(linear, bias, hard=True), torch.zeros(6)).statistics
    assert sums.mass.tolist() == [0, 200, 0, 0]
    soft = accumulate(x, Logits(linear, bias), torch.zeros(6), keep_assignment=True)
    assert not soft.assignment[:, 0].any()
    torch.testing.assert_close(soft.statistics.mass, 200 / 3 * torch.tensor([0.0, 1, 1, 1], dtype=torch.float64))


@needs_library
@pytest.mark.parametrize("size", [1e-41, 1e-30, 1e18])
def test_tiny_and_huge_numbers_are_added_as_in_torch(size):
    torch.manual_seed(0)
    x, assign = torch.randn(300, 20) * size, logits(20, 5, torch.float32, scale=1 / size if size > 1 else 1.0)
    found, reference = both(x, assign, torch.zeros(20))
    for a, b in zip(found, reference, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5 * float(b.abs().max()), equal_nan=True)


@needs_library
@pytest.mark.parametrize("hard", [False, True])
def test_neither_threads_nor_reading_in_pieces_change_a_byte(hard):
    torch.manual_seed(0)
    x, assign, origin = torch.randn(6000, 200), logits(200, 7, torch.float32, hard=hard), torch.zeros(200)
    found = []
    for threads, rows in product((1, 2, 5), (x, Unaligned(x.numpy(), x.dtype, x.shape))):
        with allow_threads(threads):
            found.append(accumulate(rows, assign, origin, keep_assignment=True, keep_scores=True))
    for other in found[1:]:
        assert torch.equal(found[0].assignment, other.assignment)
        assert torch.equal(found[0].scores, other.scores)
        assert all(torch.equal(a, b) for a, b in zip(found[0].statistics, other.statistics, strict=True))


@needs_library
@pytest.mark.parametrize("threads", [1, 3])
def test_rows_that_cannot_be_read_raise_in_the_calling_thread(threads, monkeypatch):
    class Torn:
        shape, dtype = (200_000, 16), torch.float32

        def __getitem__(self, rows: slice) -> torch.Tensor:
            if rows.start > 60_000:
                raise OSError("the file ends here")
            return torch.zeros(len(range(*rows.indices(self.shape[0]))), 16)

    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    with pytest.raises(OSError, match="ends here"):
        accumulate(Torn(), nearest(torch.eye(4, 16)), torch.zeros(16))


@needs_library
def test_a_thread_does_not_wait_for_the_turn_of_one_that_has_failed():
    walk = compiled._Walk(missing, logits(16, 4, torch.float32), torch.zeros(16), compiled.SOFT, squares=True)
    walk._sums.merged, walk._sums.stopped = -1, 1
    walk.over(torch.randn(600, 16), None)
    assert not any(sums.any() for sums in walk.sums)


@needs_library
@pytest.mark.parametrize("dtype", TYPES)
def test_squared_distances_are_those_of_plain_differences(dtype, kernel):
    torch.manual_seed(0)
    x, points = torch.randn(900, 33).to(dtype), torch.randn(5, 33)
    found = squared_distances(x, points, torch.full((33,), 0.5))
    exact = (x.double()[:, None] - points.double()).square().sum(-1)
    torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-5)


@needs_library
def test_torch_computes_where_gradients_are_required():
    x, centroids = torch.randn(50, 4, requires_grad=True), torch.randn(3, 4)
    assign, origin = Logits(centroids.T, torch.zeros(1, 3)), torch.zeros(4)
    assert accumulate(x, assign, origin).statistics.total.requires_grad
    assert squared_distances(x, centroids, origin).requires_grad
    with torch.no_grad():
        assert not accumulate(x, assign, origin).statistics.total.requires_grad


def test_an_unknown_kernel_is_refused_with_the_known_ones(monkeypatch):
    monkeypatch.setenv("PANTHER_KERNEL", "fortran")
    with pytest.raises(InputError, match=r"PANTHER_KERNEL.*'fortran'.*auto"):
        accumulate(torch.ones(3, 2), nearest(torch.eye(2)), torch.zeros(2))


@pytest.fixture
def library_at(monkeypatch):
    """Look for the library elsewhere."""

    def move(path: Path) -> None:
        monkeypatch.setattr(compiled, "LIBRARY", path)
        load_library.cache_clear()

    yield move
    load_library.cache_clear()


@pytest.mark.parametrize("damage", ["missing", "cut off", "no library", "of another version"])
def test_without_a_valid_library_torch_computes_and_doctor_gives_the_reason(damage, tmp_path, library_at, monkeypatch):
    monkeypatch.setenv("PANTHER_KERNEL", "auto")
    place = tmp_path / LIBRARY.name
    if damage == "cut off" and LIBRARY.exists():
        place.write_bytes(LIBRARY.read_bytes()[:500])
    elif damage == "of another version" and LIBRARY.exists():
        shutil.copyfile(LIBRARY, place)
        monkeypatch.setattr(compiled, "INTERFACE", -1)
    elif damage != "missing":
        place.write_text("not a library")
    library_at(place)
    assert kernel_name() == "torch"
    assert float(accumulate(torch.ones(3, 2), nearest(torch.eye(2)), torch.zeros(2)).statistics.mass.sum()) == 3
    line = next(finding for finding in doctor().values["findings"] if finding["what"] == "kernel")
    assert line["state"].startswith("torch")
    assert line["remedy"] is not None
    monkeypatch.setenv("PANTHER_KERNEL", "compiled")
    with pytest.raises(InputError, match="no compiled kernel"):
        kernel_name()

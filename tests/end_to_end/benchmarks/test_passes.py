"""The reference of `benchmarks/embed.py` makes exactly the published passes; otherwise its ratio is meaningless."""

import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

PATCHES = 200


@pytest.fixture(scope="module")
def passes():
    folder = str(Path(__file__).parents[3] / "benchmarks")
    sys.path.insert(0, folder)
    try:
        import _passes

        yield _passes
    finally:
        sys.path.remove(folder)


class CountPasses(TorchDispatchMode):
    """Count products, and every operation that makes something as large as the bag."""

    def __init__(self, bag_size: int) -> None:
        super().__init__()
        self.bag_size, self.products, self.copies = bag_size, 0, Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.products += func._opname in ("bmm", "mm", "baddbmm", "addmm")
        is_view = func.is_view or func._opname in ("view", "_unsafe_view")
        if isinstance(result, torch.Tensor) and result.numel() >= self.bag_size and not is_view:
            self.copies[func._opname] += 1
        return result


@pytest.mark.parametrize("steps", [1, 3])
def test_the_reference_squares_the_bag_twice_per_step_and_never_copies_it(passes, steps):
    x, prototypes = passes.slide("soft", PATCHES)
    with CountPasses(x.numel()) as counted:
        passes.plain(x, prototypes, steps)
    assert counted.products == 4 * steps
    assert counted.copies == {"pow": 2 * steps}


def test_the_reference_computes_the_same_mixture(passes):
    x, prototypes = passes.slide("soft", PATCHES)
    for steps in (1, 3):
        found, truth = passes.plain(x, prototypes, steps), passes.exact(x, prototypes, steps)[-1][1]
        for theirs, mine, true in zip(found, passes.ours(x, prototypes, steps), truth, strict=True):
            assert_close(theirs.double(), true, rtol=1e-3, atol=1e-4)
            assert_close(theirs, mine.to(theirs), rtol=1e-3, atol=1e-4)

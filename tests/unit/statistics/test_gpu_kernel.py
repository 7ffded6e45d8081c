"""The Triton kernels, run on the CPU by Triton's own interpreter, against the torch reference."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from mixture_bags import mixture_bag
from panther.mixture import EMSettings, fit_mixture
from panther.mixture.replayed import launch_replayed
from panther.types import Ragged

pytest.importorskip("triton", reason="Triton is not installed: it comes with torch on Linux alone")

COMPARE = Path(__file__).with_name("compare_gpu_kernel.py")


def test_triton_kernels_agree_with_the_reference():
    """In a separate process: the interpreter is chosen when Triton is imported."""
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, str(COMPARE)], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "settings", [EMSettings(), EMSettings(steps=3, tau=1.0), EMSettings(steps=2, covariance="tied")]
)
def test_bags_one_after_the_other_give_what_each_gives_alone(settings):
    bags = [mixture_bag(n, 5, 3, seed=n)[0] for n in (4, 30, 11)]
    h = mixture_bag(1, 5, 3)[1]
    batch = Ragged(torch.cat(bags), (4, 30, 11))
    keep = {"keep_assignment": True, "keep_scores": True}
    together = fit_mixture(batch, h, torch.ones(5), settings, **keep)
    alone = [fit_mixture(bag, h, torch.ones(5), settings, **keep) for bag in bags]
    for i, fit in enumerate(alone):
        for a, b in zip(together.mixture, fit.mixture, strict=True):
            assert torch.equal(a[i], b)
        assert torch.equal(together.log_likelihood[i], fit.log_likelihood)
    assert torch.equal(together.assignment, torch.cat([fit.assignment for fit in alone]))
    assert torch.equal(together.scores, torch.cat([fit.scores for fit in alone]))


def test_a_bag_of_a_batch_that_float32_cannot_sum_is_repeated_and_the_others_are_as_they_were():
    far, near = mixture_bag(40, 6, 3, separation=200.0, seed=1), mixture_bag(50, 6, 3, seed=2)
    batch = Ragged(torch.cat([far[0], near[0]]), (40, 50))
    together = fit_mixture(batch, far[1], torch.ones(6))
    for i, bag in enumerate((far[0], near[0])):
        for a, b in zip(together.mixture, fit_mixture(bag, far[1], torch.ones(6)).mixture, strict=True):
            assert torch.equal(a[i], b)


@pytest.mark.parametrize("to_host", [False, True])
@pytest.mark.parametrize("keep_scores", [False, True])
@pytest.mark.parametrize("steps", [1, 4])
def test_replayed_fits_equal_plain_fits(steps, keep_scores, to_host):
    """On a GPU by CUDA graphs; here the same functions are called."""
    x, h = mixture_bag(300, 40, 3, separation=0.2)
    settings = EMSettings(steps=steps, tau=0.5)
    keep = {"keep_assignment": True, "keep_scores": keep_scores}
    replayed = launch_replayed(x, h, torch.ones(40), settings, **keep, to_host=to_host)()
    plain = fit_mixture(x, h, torch.ones(40), settings, **keep)
    for a, b in zip((*replayed.mixture, *replayed[1:]), (*plain.mixture, *plain[1:]), strict=True):
        assert (a is None and b is None and not keep_scores) or torch.equal(a, b)


@pytest.mark.parametrize("to_host", [False, True])
def test_a_bag_that_needs_float64_is_not_replayed(to_host):
    x, h = mixture_bag(40, 6, 3, separation=200.0)
    keep = {"keep_assignment": False, "keep_scores": False}
    assert launch_replayed(x, h, torch.ones(6), EMSettings(), **keep, to_host=to_host)() is None

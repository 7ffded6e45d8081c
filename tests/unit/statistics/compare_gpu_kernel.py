"""Compare the Triton kernels with the torch reference under TRITON_INTERPRET=1. Run by test_gpu_kernel.py."""

import torch

from panther.statistics import Logits, gpu
from panther.statistics.torch_kernel import accumulate_bags_in_torch
from panther.types import Ragged

gpu.CHUNK = 128  # several chunks in small bags
gpu.PART = torch.float16  # the interpreter takes the bits of bfloat16 numbers for whole numbers when it multiplies
lengths, d = (150, 1, 300), 70  # neither a multiple of a piece nor of a block


def parameters(case: str, c: int, generator: torch.Generator) -> Logits:
    own = (len(lengths),) if case == "own parameters" else ()
    linear = 0.3 * torch.randn(*own, d, c, generator=generator)
    bias = torch.randn(*own, 1, c, generator=generator)
    if case == "soft":
        bias[..., 1] = -torch.inf  # a component without weight
    quadratic = -torch.rand(*own, d, c, generator=generator) if case in ("quadratic", "own parameters") else None
    common = -torch.rand(d, generator=generator) if case in ("common", "half", "hard") else None
    return Logits(linear, bias, quadratic, 3.0 if case == "tempered" else 1.0, hard=case == "hard", common=common)


def main(case: str) -> None:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(sum(lengths), d, generator=generator) + 2
    if case == "half":
        rows = rows.half()
    if case == "nan":
        rows[160, 3] = torch.nan
    assign = parameters(case, 1 if case == "one prototype" else 5, generator)
    for squares in (True, False) if assign.quadratic is None else (True,):
        bags, origin = Ragged(rows, lengths), torch.full((d,), 2.0)
        keep = {"keep_assignment": True, "keep_scores": True}
        got = gpu.accumulate_ragged(bags, assign, origin, squares=squares, **keep)
        exact = accumulate_bags_in_torch(bags, assign, origin, squares=squares, **keep)
        if case == "nan":  # found by whoever looks at the sums, and in its own bag alone
            assert torch.isnan(got.statistics.total[2]).any()
            assert torch.isfinite(got.statistics.total[:2]).all()
            continue
        for name, a, b in zip(got.statistics._fields, got.statistics, exact.statistics, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-4, msg=lambda text, name=name: f"{name}: {text}")
        torch.testing.assert_close(got.assignment, exact.assignment, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(got.scores, exact.scores, rtol=1e-5, atol=1e-4)
        keep = {"keep_assignment": False, "keep_scores": False}
        alone = gpu.accumulate_ragged(Ragged(rows[151:], (300,)), _last(assign), origin, squares=squares, **keep)
        for a, b in zip(got.statistics, alone.statistics, strict=True):
            assert torch.equal(a[-1], b[0]), "a bag alone gives other bytes than in a batch"


def _last(assign: Logits) -> Logits:
    if assign.linear.dim() == 2:
        return assign
    assert assign.quadratic is not None
    return Logits(assign.linear[-1:], assign.bias[-1:], assign.quadratic[-1:])


def several() -> None:
    """The same rows under several sets of factors give what they give under each."""
    generator = torch.Generator().manual_seed(0)
    rows, origin = torch.randn(300, d, generator=generator), torch.zeros(d)
    linear, bias = torch.randn(3, d, 5, generator=generator), torch.randn(3, 1, 5, generator=generator)
    together = gpu.accumulate_many(rows, Logits(linear, bias, hard=True), origin)
    for i in range(3):
        keep = {"keep_assignment": False, "keep_scores": False}
        one = Logits(linear[i], bias[i], hard=True)
        alone = gpu.accumulate_ragged(Ragged(rows, (300,)), one, origin, squares=False, **keep).statistics
        for a, b in zip(together, alone, strict=True):
            assert torch.equal(a[i], b[0])


several()
for case in ("soft", "hard", "quadratic", "tempered", "own parameters", "half", "one prototype", "common", "nan"):
    print(case, flush=True)
    main(case)

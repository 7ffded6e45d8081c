"""Our AdamW is torch's, bit for bit, and torch's compiler stays out of training."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from mil.training import needle_bags, small_model
from panther.mil import networks
from panther.models import trainer
from panther.models.heads import build_head, heads

RATES = (1e-2, 3e-3, 1e-3)


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def trained(model: nn.Module, batches, steps: int, ours: bool) -> list[torch.Tensor]:
    """Parameters after some steps: matrices decay, what has one dimension does not."""
    parameters = list(model.parameters())
    kinds = [([p for p in parameters if p.ndim > 1], 0.1), ([p for p in parameters if p.ndim < 2], 0.0)]
    kinds = [(params, decay) for params, decay in kinds if params]
    groups = [trainer.parameter_group(*kind) for kind in kinds]
    theirs = torch.optim.AdamW([{"params": p, "weight_decay": d} for p, d in kinds], fused=True)
    for number in range(steps):
        torch.manual_seed(number)  # dropout
        rate = RATES[number % len(RATES)]
        outputs = model(batches[number % len(batches)])
        getattr(outputs, "logits", outputs).float().square().mean().backward()
        if ours:
            trainer.follow_gradients(groups, rate)
            assert all(p.grad is None for p in parameters)
            continue
        for group in theirs.param_groups:
            group["lr"] = rate
        theirs.step()
        theirs.zero_grad()
    return [p.detach().clone() for p in parameters]


def same_bytes(build, batches, steps: int) -> None:
    before = [p.detach().clone() for p in build().parameters()]
    ours, theirs = (trained(build().train(), batches, steps, own) for own in (True, False))
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(ours, before, strict=True))


@pytest.mark.parametrize("name", networks.names())
def test_every_network_steps_as_with_torchs_class_bit_for_bit(name):
    bags, _ = needle_bags(4, 16, seed=0)
    same_bytes(lambda: small_model(name, 16, 2, bags), bags, 12)


@pytest.mark.parametrize("name", heads.names())
def test_every_head_steps_as_with_torchs_class_bit_for_bit(name):
    batches = torch.randn(5, 8, 4, 33, generator=torch.Generator().manual_seed(0)).unbind()
    same_bytes(lambda: build_head(name, (4, 33), 3, seed=0), batches, 40)


def test_a_parameter_without_a_gradient_neither_moves_nor_decays():
    used, unused = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
    (own,) = groups = [trainer.parameter_group([used, unused], 0.5)]
    used.sum().backward()
    trainer.follow_gradients(groups, 0.1)
    assert torch.equal(unused, torch.ones(3))
    assert not torch.equal(used, torch.ones(3))
    assert [float(steps) for steps in own.steps] == [1, 0]


def test_steps_go_on_from_what_was_kept():
    gradients = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))

    def walk(rows, start, kept=None):
        parameter = nn.Parameter(start.clone())
        groups = [trainer.parameter_group([parameter], 0.01)]
        if kept is not None:
            trainer._restore(groups, kept)
        for row in rows:
            parameter.grad = row.clone()
            trainer.follow_gradients(groups, 0.1)
        return parameter.detach(), [group.state() for group in groups]

    whole, _ = walk(gradients, torch.ones(4))
    half, kept = walk(gradients[:3], torch.ones(4))
    assert torch.equal(walk(gradients[3:], half, kept)[0], whole)


def test_training_a_head_does_not_import_torchs_compiler():
    code = (
        "import sys, numpy as np, torch\n"
        "from panther.cohort.targets import Classes\n"
        "from panther.models.heads import build_head\n"
        "from panther.models.settings import TrainSettings\n"
        "from panther.models.tasks import fit_task\n"
        "from panther.models.trainer import ArraySource, fit\n"
        "target = Classes(('a', 'b'), np.arange(12) % 2)\n"
        "task = fit_task('cross-entropy', target)\n"
        "source = ArraySource(np.eye(12, dtype='f4'), task.encode(target), 4)\n"
        "fit(build_head('mlp', (12,), 2, seed=0), source, task, TrainSettings(epochs=2))\n"
        "sys.exit('torch._dynamo' in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

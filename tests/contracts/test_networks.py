"""What a supervised network promises beyond the contract of all aggregators (test_aggregators.py)."""

from dataclasses import replace

import pytest
import torch
from given import OUTPUTS, SUPERVISED, D, a_bag

from panther.errors import InputError


@pytest.fixture
def bag() -> torch.Tensor:
    return a_bag()


@pytest.fixture(params=SUPERVISED, ids=str)
def variant(request):
    return request.param


@pytest.fixture
def module(variant):
    return variant.build().eval()


def test_attention_is_a_heatmap_one_column_or_one_an_output_and_each_sums_to_one(module, bag):
    assignment = module(bag, with_assignment=True).assignment
    assert assignment.shape in {(len(bag), 1), (len(bag), OUTPUTS)}
    assert not assignment.requires_grad
    torch.testing.assert_close(assignment.sum(0), torch.ones(assignment.shape[1]))


def test_a_batch_has_a_heatmap_for_each_bag_and_none_for_padding(module, bag):
    batch = torch.stack([bag, bag])
    mask = torch.ones(2, 80, dtype=torch.bool)
    mask[1, 33:] = False
    assignment = module(batch, mask, with_assignment=True).assignment
    assert (assignment[1, 33:] == 0).all()
    for found, alone in ((assignment[0], bag), (assignment[1, :33], bag[:33])):
        torch.testing.assert_close(found, module(alone, with_assignment=True).assignment, rtol=1e-4, atol=1e-5)


def test_asking_for_the_heatmap_does_not_change_the_vector(module, bag):
    assert torch.equal(module(bag, with_assignment=True).vector, module(bag).vector)


def test_the_seed_alone_decides_the_start(variant, module):
    torch.manual_seed(77)
    again, other = variant.build(), variant.build(seed=1)
    assert all(torch.equal(a, b) for a, b in zip(module.parameters(), again.parameters(), strict=True))
    assert any(not torch.equal(a, b) for a, b in zip(module.parameters(), other.parameters(), strict=True))


def test_every_parameter_learns(module, bag):
    embedding = module(bag)
    extra = embedding.aux.get("instance_logits", torch.zeros(()))
    (embedding.vector.sin().sum() + extra.sum()).backward()
    idle = [name for name, p in module.named_parameters() if p.grad is None]
    assert idle == []
    assert all(torch.isfinite(p.grad).all() for p in module.parameters())


def test_unknown_and_senseless_settings_are_refused(variant):
    for options in ({"colour": 1}, {"hidden": 0}, {"dropout": 1.0}):
        with pytest.raises(InputError):
            replace(variant, options=options).build()


def test_patches_of_another_width_are_refused(module):
    with pytest.raises(InputError, match="built for 6"):
        module(torch.zeros(4, D + 1))


def test_half_precision_training_stays_near(module, bag):
    with torch.autocast("cpu", torch.bfloat16):
        embedding = module(bag)
    embedding.vector.float().square().sum().backward()
    torch.testing.assert_close(embedding.vector.float(), module(bag).vector, rtol=0.1, atol=0.1)

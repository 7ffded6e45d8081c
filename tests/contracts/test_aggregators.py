"""The contract every aggregator and every supervised network keeps: this file never names one; the registries write the tests."""

import io

import pytest
import torch
from given import EVERYTHING, C, D, a_bag, call

from panther.errors import InputError

pytestmark = pytest.mark.usefixtures("kernel", "one_thread")


@pytest.fixture
def bag() -> torch.Tensor:
    return a_bag()


@pytest.fixture(params=EVERYTHING, ids=str)
def variant(request):
    return request.param


@pytest.fixture
def module(variant):
    return variant.build().eval()


@pytest.fixture
def promises(variant, module):
    """What the entry's metadata promises for these settings."""

    def promise(name):
        value = getattr(variant.metadata, name)
        return value(module) if callable(value) else value

    return promise


def test_the_vector_has_the_announced_length_and_every_number_a_name(module, bag):
    embedding = call(module, bag)
    assert embedding.vector.shape == (module.out_dim,)
    columns = module.columns()
    assert len(columns) == module.out_dim
    assert len(set(columns)) == len(columns)


def test_tokens_flatten_to_the_vector(module, bag):
    embedding = call(module, bag)
    if embedding.tokens is None:
        pytest.skip("this one has no view by tokens")
    assert embedding.tokens.shape[0] == getattr(module, "token_count", C)  # networks: one an output
    assert torch.equal(embedding.tokens.flatten(), embedding.vector)


def test_the_order_of_patches_does_not_matter(module, promises, bag):
    if not promises("permutation_invariant"):
        pytest.skip("declared exempt: not permutation-invariant")
    shuffled = bag[torch.randperm(len(bag), generator=torch.Generator().manual_seed(1))]
    torch.testing.assert_close(call(module, shuffled).vector, call(module, bag).vector, rtol=1e-5, atol=1e-5)


def test_a_bag_seen_twice_is_the_same_bag(module, promises, bag):
    if not promises("duplication_invariant"):
        pytest.skip("declared exempt: counts patches, has a prior, or positions on a grid")
    torch.testing.assert_close(
        call(module, torch.cat([bag, bag])).vector, call(module, bag).vector, rtol=1e-5, atol=1e-5
    )


def test_padding_changes_nothing(module, bag):
    short = bag[:33]
    batch = torch.stack([bag, torch.cat([short, torch.full((47, D), 1e6)])])
    mask = torch.ones(2, 80, dtype=torch.bool)
    mask[1, 33:] = False
    together = call(module, batch, mask, with_assignment=True)
    for i, alone in enumerate((call(module, bag), call(module, short))):
        torch.testing.assert_close(together.vector[i], alone.vector, rtol=1e-4, atol=1e-5)


def test_float16_features_are_welcome(module, bag):
    half = bag.half()
    torch.testing.assert_close(call(module, half).vector, call(module, half.float()).vector)


def test_the_assignment_comes_only_when_asked_for(module, bag):
    assert call(module, bag).assignment is None
    assignment = call(module, bag, with_assignment=True).assignment
    assert assignment.shape[0] == len(bag)
    assert (assignment >= 0).all()


def test_gradients_reach_the_features(module, promises, bag):
    if not promises("differentiable"):
        pytest.skip("declared exempt: not differentiable")
    x = bag.double().requires_grad_()
    call(module.double(), x).vector.square().sum().backward()
    assert torch.isfinite(x.grad).all()
    assert x.grad.abs().sum() > 0


def test_a_saved_module_is_the_same_after_loading(module, bag):
    buffer = io.BytesIO()
    torch.save(module.state_dict(), buffer)
    expected = call(module, bag).vector
    with torch.no_grad():
        for tensor in module.state_dict().values():
            tensor.zero_()
    buffer.seek(0)
    module.load_state_dict(torch.load(buffer, weights_only=True))
    assert torch.equal(call(module, bag).vector, expected)


def test_one_patch_is_enough_and_none_is_refused(module, bag):
    assert torch.isfinite(call(module, bag[:1]).vector).all()
    with pytest.raises(InputError, match="empty"):
        call(module, bag[:0])

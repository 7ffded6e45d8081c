"""The contract every supervised network keeps, the same sentences as for aggregators; the registry writes the tests."""

import io

import pytest
import torch

from conftest import mixture_bag
from panther.errors import InputError
from panther.mil import build, networks
from panther.types import Prototypes

D, C, OUTPUTS = 6, 4, 3


@pytest.fixture(autouse=True)
def _one_thread():
    """Small tensors on busy cores: one thread is faster than two that wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def bag() -> torch.Tensor:
    return mixture_bag(80, D, C, separation=1.0)[0]


@pytest.fixture
def prototypes() -> Prototypes:
    return Prototypes(mixture_bag(1, D, C, separation=1.0)[1], within_variance=torch.full((D,), 0.8))


@pytest.fixture(params=[(e.name, o) for e in networks for o in e.metadata["variants"]], ids=lambda p: f"{p[0]}-{p[1]}")
def module(request, prototypes):
    name, options = request.param
    return build(name, D, OUTPUTS, prototypes, options).eval()


@pytest.fixture
def promises(module):
    """What the entry's metadata promises for these settings."""
    (metadata,) = [e.metadata for e in networks if e.value is type(module)]
    return lambda name: metadata[name](module) if callable(metadata[name]) else metadata[name]


def test_the_vector_has_the_announced_length_and_every_number_a_name(module, bag):
    embedding = module(bag)
    assert embedding.vector.shape == (module.out_dim,)
    columns = module.columns()
    assert len(columns) == module.out_dim
    assert len(set(columns)) == len(columns)


def test_tokens_flatten_to_the_vector(module, bag):
    embedding = module(bag)
    if embedding.tokens is None:
        pytest.skip("this network has no view by tokens")
    assert embedding.tokens.shape[0] == module.token_count
    assert torch.equal(embedding.tokens.flatten(), embedding.vector)


def test_the_order_of_patches_does_not_matter(module, promises, bag):
    if not promises("permutation_invariant"):
        pytest.skip("declared exempt: not permutation-invariant")
    shuffled = bag[torch.randperm(len(bag), generator=torch.Generator().manual_seed(1))]
    torch.testing.assert_close(module(shuffled).vector, module(bag).vector, rtol=1e-5, atol=1e-5)


def test_a_bag_seen_twice_is_the_same_bag(module, promises, bag):
    if not promises("duplication_invariant"):
        pytest.skip("declared exempt: positions on a grid")
    torch.testing.assert_close(module(torch.cat([bag, bag])).vector, module(bag).vector, rtol=1e-5, atol=1e-5)


def test_padding_changes_nothing(module, bag):
    short = bag[:33]
    batch = torch.stack([bag, torch.cat([short, torch.full((47, D), 1e6)])])
    mask = torch.ones(2, 80, dtype=torch.bool)
    mask[1, 33:] = False
    together = module(batch, mask, with_assignment=True)
    for i, alone in enumerate((module(bag), module(short))):
        torch.testing.assert_close(together.vector[i], alone.vector, rtol=1e-4, atol=1e-5)
    assert (together.assignment[1, 33:] == 0).all()
    torch.testing.assert_close(
        together.assignment[1, :33], module(short, with_assignment=True).assignment, rtol=1e-4, atol=1e-5
    )


def test_float16_features_are_welcome(module, bag):
    half = bag.half()
    torch.testing.assert_close(module(half).vector, module(half.float()).vector)


def test_the_assignment_comes_only_when_asked_for(module, bag):
    assert module(bag).assignment is None
    assignment = module(bag, with_assignment=True).assignment
    assert assignment.shape[0] == len(bag)
    assert (assignment >= 0).all()
    torch.testing.assert_close(assignment.sum(0), torch.ones(assignment.shape[1]))


def test_gradients_reach_the_features(module, promises, bag):
    if not promises("differentiable"):
        pytest.skip("declared exempt: not differentiable")
    x = bag.double().requires_grad_()
    module.double()(x).vector.square().sum().backward()
    assert torch.isfinite(x.grad).all()
    assert x.grad.abs().sum() > 0


def test_a_saved_module_is_the_same_after_loading(module, bag):
    buffer = io.BytesIO()
    torch.save(module.state_dict(), buffer)
    expected = module(bag).vector
    with torch.no_grad():
        for tensor in module.state_dict().values():
            tensor.zero_()
    buffer.seek(0)
    module.load_state_dict(torch.load(buffer, weights_only=True))
    assert torch.equal(module(bag).vector, expected)


def test_one_patch_is_enough_and_none_is_refused(module, bag):
    assert torch.isfinite(module(bag[:1]).vector).all()
    with pytest.raises(InputError, match="empty"):
        module(bag[:0])


def test_the_seed_alone_decides_the_start(module, request, prototypes):
    name, options = request.node.callspec.params["module"]
    torch.manual_seed(77)
    again = build(name, D, OUTPUTS, prototypes, options)
    other = build(name, D, OUTPUTS, prototypes, options, seed=1)
    assert all(torch.equal(a, b) for a, b in zip(module.parameters(), again.parameters(), strict=True))
    assert any(not torch.equal(a, b) for a, b in zip(module.parameters(), other.parameters(), strict=True))


def test_every_parameter_learns(module, bag):
    embedding = module(bag)
    extra = embedding.aux.get("instance_logits", torch.zeros(()))
    (embedding.vector.sin().sum() + extra.sum()).backward()
    idle = [name for name, p in module.named_parameters() if p.grad is None]
    assert idle == []
    assert all(torch.isfinite(p.grad).all() for p in module.parameters())


def test_unknown_and_senseless_settings_are_refused(module, request, prototypes):
    name, _ = request.node.callspec.params["module"]
    for options in ({"colour": 1}, {"hidden": 0}, {"dropout": 1.0}):
        with pytest.raises(InputError):
            build(name, D, OUTPUTS, prototypes, options)


def test_patches_of_another_width_are_refused(module):
    with pytest.raises(InputError, match="built for 6"):
        module(torch.zeros(4, D + 1))


def test_half_precision_training_stays_near(module, bag):
    with torch.autocast("cpu", torch.bfloat16):
        embedding = module(bag)
    embedding.vector.float().square().sum().backward()
    torch.testing.assert_close(embedding.vector.float(), module(bag).vector, rtol=0.1, atol=0.1)

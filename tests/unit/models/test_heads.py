"""Heads: shapes, sizes of the paper, and per-prototype networks that are one product but C networks."""

import pytest
import torch
from torch import nn

from panther.errors import InputError
from panther.models.heads import PerPrototypeLinear, build_head, heads

C, T = 4, 7


@pytest.mark.parametrize("name", heads.names())
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_every_head_takes_vectors_and_tokens_and_learns(name, n_outputs):
    head = build_head(name, (C, T), n_outputs, seed=0).eval()
    tokens = torch.randn(32, C, T)
    head(tokens).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in head.parameters())
    assert head(tokens).shape == (32, n_outputs)
    torch.testing.assert_close(head(tokens), head(tokens.flatten(1)))


@pytest.mark.parametrize("name", heads.names())
def test_the_same_seed_starts_the_same_and_leaves_the_global_one_alone(name):
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    first, second = (build_head(name, (C, T), 2, seed=3).state_dict() for _ in range(2))
    other = build_head(name, (C, T), 2, seed=4).state_dict()
    assert torch.equal(before, torch.random.get_rng_state())
    assert all(torch.equal(first[k], second[k]) for k in first)
    assert not all(torch.equal(first[k], other[k]) for k in first)


def test_one_batched_product_is_c_separate_linear_maps():
    layer = PerPrototypeLinear(C, T, 3)
    x = torch.randn(6, C, T)
    separate = []
    for c in range(C):
        linear_map = nn.Linear(T, 3)
        linear_map.weight.data, linear_map.bias.data = layer.weight[c].T, layer.bias[c, 0]
        separate.append(linear_map(x[:, c]))
    torch.testing.assert_close(layer(x), torch.stack(separate, 1))


def test_the_presets_have_the_sizes_of_the_paper():
    survival = build_head("paper-survival", (16, 2049), 1)
    shapes = [tuple(p.shape) for p in survival.parameters()]
    assert shapes == [(256, 2049), (256,), (16, 256, 128), (16, 1, 128), (1, 16 * 128)]
    classification = build_head("paper-classification", (16, 2049), 30)
    shapes = [tuple(p.shape) for p in classification.parameters()]
    assert shapes == [(16, 2049, 128), (16, 1, 128), (1024, 2048), (1024,), (30, 1024)]
    assert {m.p for m in [*survival.modules(), *classification.modules()] if isinstance(m, nn.Dropout)} == {0.1}


@pytest.mark.parametrize("stage", ["shared", "per_prototype", "after"])
@pytest.mark.parametrize("kind", ["identity", "linear", "mlp"])
def test_every_stage_may_be_identity_linear_or_mlp(stage, kind):
    options = {"shared": "identity", "per_prototype": "identity", "after": "identity", stage: kind}
    head = build_head("structured", (C, T), 2, options)
    x = torch.randn(3, C, T)
    assert head(x).shape == (3, 2)
    linear = torch.allclose(head.eval()(x) + head(-x), 2 * head(torch.zeros(3, C, T)), atol=1e-5)
    assert linear == (kind != "mlp")


@pytest.mark.parametrize(
    ("name", "shape", "options", "sentence"),
    [
        ("structured", (64,), {}, "token"),
        ("structured", (C, T), {"shared": "cnn"}, "shared: found 'cnn'"),
        ("structured", (C, T), {"dropout": 1.0}, "dropout"),
        ("linear", (C, T), {"width": 3}, "has no setting 'width'; known are bias"),
        ("mlp", (C, T), {"hidden": []}, "hidden"),
        ("transformer", (C, T), {}, "There is no head 'transformer'"),
    ],
)
def test_invalid_heads_are_refused(name, shape, options, sentence):
    with pytest.raises(InputError, match=sentence):
        build_head(name, shape, 2, options)


@pytest.mark.parametrize("name", heads.names())
def test_numbers_of_the_whole_slide_follow_the_tokens(name):
    dim = (T - 1) // 2
    head = build_head(name, (C, T, dim), 2, seed=0)
    x = torch.randn(6, C * T + dim)
    assert head(x).shape == (6, 2)
    moved = x.clone()
    moved[:, -dim:] += 1.0
    assert not torch.allclose(head.eval()(x), head(moved))


def test_gates_start_at_one_and_each_statistic_has_one():
    dim = (T - 1) // 2
    gated = build_head("structured", (C, T, dim), 1, seed=0).eval()
    plain = build_head("structured", (C, T, dim), 1, {"gates": False}, seed=0).eval()
    x = torch.randn(5, C * T + dim)
    torch.testing.assert_close(gated(x), plain(x))
    gated(x).square().sum().backward()
    assert (gated.gates.exponent.grad.abs() > 0).all()
    with torch.no_grad():
        gated.gates.exponent[0] = -1.0  # shares are shut out
    moved = x.clone()
    moved[:, : C * T : T] += 5.0
    torch.testing.assert_close(gated(x), gated(moved))
    assert (
        "gates.exponent" not in build_head("structured", (C, T), 1).state_dict()
    )  # nothing to weigh without the slide's mean

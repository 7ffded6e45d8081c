"""Attention against its definition, written out with the matrices that the networks never hold."""

import pytest
import torch

from panther.errors import InputError
from panther.mil import MILModel, build, build_model, networks
from panther.mil._attention import attend, nystroem, nystroem_row, pseudo_inverse, segment_means
from panther.mil.dsmil import read
from panther.mil.ilra import AttentionBlock
from panther.mil.transmil import PositionEncoding
from panther.types import Projection, Prototypes

pytestmark = pytest.mark.usefixtures("one_thread")


def qkv(n: int, dim: int = 8, seed: int = 0) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(1, 2, n, dim, generator=generator, dtype=torch.float64) for _ in range(3))


def softmax_of(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a @ b.transpose(-1, -2) / a.shape[-1] ** 0.5).softmax(-1)


@pytest.mark.parametrize(("n", "count"), [(10, 5), (11, 5), (17, 16), (7, 7)])
def test_segments_cover_every_token_once_in_equal_shares(n, count):
    x = torch.arange(n, dtype=torch.float64).unsqueeze(-1)
    means = segment_means(x, count).squeeze(-1)
    sizes = torch.tensor([n // count + (i < n % count) for i in range(count)])
    torch.testing.assert_close((means * sizes).sum(), x.sum())
    assert (means.diff() > 0).all()


def test_the_iteration_finds_the_pseudo_inverse():
    q, k, _ = qkv(12)
    a = softmax_of(q, k)
    torch.testing.assert_close(pseudo_inverse(a, 40), torch.linalg.pinv(a), rtol=1e-6, atol=1e-6)


def test_nystroem_is_its_three_factors():
    q, k, v = qkv(101)
    few_q, few_k = segment_means(q, 10), segment_means(k, 10)
    inner = pseudo_inverse(softmax_of(few_q, few_k), 6)
    dense = softmax_of(q, few_k) @ inner @ softmax_of(few_q, k)
    torch.testing.assert_close(nystroem(q, k, v, 10, 6), dense @ v)
    row = dense[:, :, 0].mean(1).clamp_min(0)
    torch.testing.assert_close(nystroem_row(q, k, 10, 6), row / row.sum())


def test_nystroem_with_enough_landmarks_is_exact():
    q, k, v = qkv(30)
    torch.testing.assert_close(nystroem(q, k, v, 30, 6), softmax_of(q, k) @ v)
    torch.testing.assert_close(attend(q, k, v), softmax_of(q, k) @ v)


def test_nystroem_comes_near_to_exact_attention_for_smooth_tokens():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, 1, 256, 8, generator=generator, dtype=torch.float64).cumsum(-2) * 0.05
    exact = softmax_of(x, x) @ x
    errors = [float((nystroem(x, x, x, m, 20) - exact).abs().max()) for m in (4, 16, 64)]
    assert errors[2] < errors[1] < errors[0]
    assert errors[2] < 0.01 * float(exact.abs().max())


def test_one_convolution_equals_three_and_the_identity():
    torch.manual_seed(0)
    positions = PositionEncoding(6).double()
    x = torch.randn(1, 49, 6, dtype=torch.float64)
    square = x.transpose(1, 2).reshape(1, 6, 7, 7)
    separate = square + sum(c(square) for c in positions.children())
    torch.testing.assert_close(positions(x, 7), separate.flatten(2).transpose(1, 2))


def test_attnmisl_ignores_empty_groups_and_follows_the_projection():
    torch.manual_seed(0)
    basis = torch.linalg.qr(torch.randn(6, 2)).Q
    near = Projection(mean=torch.zeros(6), basis=basis)
    prototypes = Prototypes(torch.tensor([[5.0, 0.0], [0.0, 5.0], [-900.0, 0.0]]), projection=near)
    network = build("attnmisl", 6, 1, prototypes, {"hidden": 8, "attention": 4}).eval()
    x = (
        torch.cat([torch.randn(20, 2) + torch.tensor([5.0, 0.0]), torch.randn(4, 2) + torch.tensor([0.0, 5.0])])
        @ basis.T
    )
    embedding = network(x, with_assignment=True)
    assert embedding.aux["mass"].tolist() == [20, 4, 0]
    assert embedding.aux["group_attention"][2] == 0
    without = build(
        "attnmisl", 6, 1, Prototypes(prototypes.centroids[:2], projection=near), {"hidden": 8, "attention": 4}
    )
    torch.testing.assert_close(without.eval()(x).vector, embedding.vector)
    with pytest.raises(InputError, match="prototype"):
        build("attnmisl", 6)


def test_attnmisl_is_the_authors_network_by_default():
    """1 x 1 convolution to 64, ReLU, mean of each cluster; attention 64-32-1; 64-32 with ReLU and dropout one half, then the output."""
    prototypes = Prototypes(torch.eye(3, 10) * 9)
    model = build_model("attnmisl", 10, 1, prototypes).eval()
    network = model.network
    shapes = {name: tuple(p.shape) for name, p in network.named_parameters() if p.ndim == 2}
    assert sorted(shapes.values()) == [(1, 32), (32, 64), (32, 64), (64, 10)]
    drops = [(name, m.p) for name, m in network.named_modules() if isinstance(m, torch.nn.Dropout) and m.p]
    assert drops == [("rho.2", 0.5)]
    x = torch.randn(40, 10) + 9 * torch.eye(3, 10)[torch.arange(40) % 3]
    phi, v, w, rho = (network.siamese[0][0], network.attention.content, network.attention.score, network.rho[0])
    groups = torch.stack([phi(x[torch.cdist(x, prototypes.centroids).argmin(1) == c]).relu().mean(0) for c in range(3)])
    a = w(torch.tanh(v(groups))).softmax(0)
    torch.testing.assert_close(model(x).logits[0], model.head(rho((a * groups).sum(0)).relu()))
    wide = build(
        "attnmisl", 10, 1, prototypes, {"hidden": 512, "layers": 2, "attention": 384, "out": 512, "dropout": 0.25}
    )
    assert wide.out_dim == 512


@pytest.mark.parametrize("gated", [True, False])
def test_ilra_projects_its_queries_again_inside_of_the_attention(gated):
    """The original is torch's MultiheadAttention behind projections of its own; its second one of keys and values is the identity here."""
    torch.manual_seed(0)
    block = AttentionBlock(5, 7, 8, 2, gated).double()
    oracle = torch.nn.MultiheadAttention(8, 2, batch_first=True).double()
    eye, zero = torch.eye(8).double(), torch.zeros(8).double()
    with torch.no_grad():
        oracle.in_proj_weight.copy_(torch.cat([block.inner_query.weight, eye, eye]))
        oracle.in_proj_bias.copy_(torch.cat([block.inner_query.bias, zero, zero]))
        oracle.out_proj.load_state_dict(block.joined.state_dict())
    queries, keys = torch.randn(2, 3, 5).double(), torch.randn(2, 11, 7).double()
    q = block.query(queries)
    found, weights = oracle(q, *block.key_value(keys).chunk(2, dim=-1))
    o = block.norm_attention(q + found)
    o = block.norm_out(o + torch.relu(block.out(o)))
    expected = o * torch.nn.functional.silu(block.gate(queries)) if gated else o
    torch.testing.assert_close(block(queries, keys), expected)
    torch.testing.assert_close(block.weights(queries, keys), weights)


def test_dsmil_predicts_the_mean_of_two_streams_and_trains_both():
    model = build_model("dsmil", 6, 3, options={"hidden": 8, "attention": 4}).eval()
    x = torch.randn(30, 6)
    outputs = model(x)
    bag, instance = outputs.streams
    torch.testing.assert_close(outputs.logits, (bag + instance) / 2)
    h = model.network.reduce(x)
    every = model.network.instance(h / h.square().mean().sqrt())
    torch.testing.assert_close(instance[0], every.amax(0))
    task = type("Squares", (), {"loss": staticmethod(lambda logits, batch: logits.square().mean())})
    torch.testing.assert_close(model.loss(outputs, {}, task), (bag.square().mean() + instance.square().mean()) / 2)
    with pytest.raises(InputError, match="same task"):
        MILModel(model.network, torch.nn.Linear(24, 2))(x)


@pytest.mark.parametrize("padded", [False, True])
def test_dsmil_reads_a_bag_as_written_out_also_in_its_gradients(padded):
    generator = torch.Generator().manual_seed(0)
    h = torch.randn(2, 7, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(3, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    rows = torch.tensor([[4, 0], [2, 2]])  # one patch may be critical twice
    mask = torch.arange(7) < torch.tensor([[7], [4]]) if padded else None
    product, rho, found = read(h, weight, rows, mask)
    torch.testing.assert_close(product, h @ weight.T)
    torch.testing.assert_close(rho[1], h[1, : 4 if padded else 7].square().mean().sqrt())
    torch.testing.assert_close(found, torch.stack([h[0, [4, 0]], h[1, [2, 2]]]))
    assert torch.autograd.gradcheck(lambda h, weight: read(h, weight, rows, mask), (h, weight))


@pytest.mark.parametrize("name", networks.names())
def test_a_batch_of_padded_bags_gives_what_they_give_alone_also_to_the_gradients(name):
    from mil.training import small_model
    from panther.mil.loading import padded

    bags = [torch.randn(n, 6, generator=torch.Generator().manual_seed(n)) for n in (3, 40, 17, 1)]
    model = small_model(name, 6, 2, bags).double().eval()
    bags = [bag.double() for bag in bags]
    together = model(**padded(bags)).logits
    alone = torch.cat([model(bag).logits for bag in bags])
    torch.testing.assert_close(together, alone)
    gradients = [torch.autograd.grad(z.square().sum(), list(model.parameters())) for z in (together, alone)]
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-9)


def test_the_published_starts_of_transmil_and_ilra_can_be_chosen():
    token = build("transmil", 8, options={"hidden": 256, "token_deviation": 1.0}).token.detach()
    assert 0.85 < float(token.std()) < 1.15
    network = build("ilra", 400, options={"hidden": 200, "xavier": True})
    layer = network.blocks[0].gather.key_value.weight.detach()  # (2 x 200, 400)
    assert float(layer.std()) == pytest.approx((2 / 600) ** 0.5, rel=0.03)
    assert float(layer.abs().max()) > 3 * float(layer.std())  # normal, not uniform


def test_dsmil_without_a_value_layer_averages_the_patches_themselves():
    network = build("dsmil", 8, n_outputs=2, options={"hidden": 16, "value_layer": False, "normalise": False}).eval()
    assert not any(name.startswith("value") for name, _ in network.named_parameters())
    x = torch.randn(30, 8)
    found = network(x, with_assignment=True)
    torch.testing.assert_close(found.tokens, found.assignment.T @ network.reduce(x))

"""Scalings: by statistic, balanced and share-weighted; they depend on training rows only."""

import numpy as np
import pytest
import torch

from panther.aggregators import build
from panther.errors import InputError
from panther.models import trainer
from panther.models.scaling import (
    build_scaler,
    mixture_shape,
    scalers,
    share_weighted_columns,
    share_weighted_coordinates,
    split,
    usual_mixture,
)
from panther.types import Prototypes


def embeddings(n: int = 40) -> tuple[torch.Tensor, list[tuple[int, str, int]]]:
    """Panther embeddings of generated bags."""
    generator = torch.Generator().manual_seed(0)
    prototypes = Prototypes(torch.randn(3, 5, generator=generator) * 2)
    module = build("panther", prototypes)
    rows = [
        module(
            prototypes.centroids[torch.randint(3, (50,), generator=generator)] + torch.randn(50, 5, generator=generator)
        ).vector
        for _ in range(n)
    ]
    return torch.stack(rows).detach(), module.columns()


def test_balanced_statistics_have_the_same_total_variance_for_any_number_of_columns():
    x, columns = embeddings()
    scaled = build_scaler("balanced")(x, columns)(x)
    statistics = np.array([s for _, s, _ in columns])
    totals = [float(scaled[:, statistics == s].var(0, correction=0).sum()) for s in ("weight", "mean", "variance")]
    assert totals == pytest.approx([len(columns) / 3] * 3, rel=1e-4)
    block = build_scaler("block")(x, columns)(x)  # within a statistic nothing changes but the unit
    torch.testing.assert_close(block.mean(0), torch.zeros(len(columns)), atol=1e-4, rtol=0)
    for s in ("weight", "mean", "variance"):
        ratio = (scaled / block)[:, statistics == s]
        torch.testing.assert_close(ratio, ratio[0, 0].expand_as(ratio), rtol=1e-3, atol=0)
        assert float(block[:, statistics == s].var(0, correction=0).mean()) == pytest.approx(1, rel=1e-4)
    x = mixtures(60)
    columns = share_weighted_columns(COUNT, DIM)[: x.shape[1]]
    scaler = build_scaler("share-weighted")(x, columns)
    scaled, blocks = scaler(x), scaler.blocks(columns)
    totals = [float(scaled[:, blocks == b].var(0, correction=0).sum()) for b in dict.fromkeys(blocks.tolist())]
    assert totals == pytest.approx([scaled.shape[1] / 4] * 4, rel=1e-4)


def test_single_numbers_of_the_tail_count_as_one_number_each():
    columns = [
        (-1, "tail_share", -1),
        *((-1, f"tail_{s}", j) for s in ("mean", "variance") for j in range(50)),
        (0, "touch", 0),
    ]
    x = torch.randn(40, len(columns), generator=torch.Generator().manual_seed(0)) * torch.logspace(-2, 2, len(columns))
    variance = build_scaler("balanced")(x, columns)(x).var(0, correction=0)
    assert float(variance[0]) == pytest.approx(float(variance[1:51].mean()), rel=1e-4)
    assert float(variance[0]) == pytest.approx(float(variance[51:101].mean()), rel=1e-4)
    assert float(variance[:101].sum()) == pytest.approx(float(variance[101]), rel=1e-4)  # one kind beside another


def test_bad_rows_and_other_widths_are_refused_and_constants_stay_finite():
    x, columns = embeddings()
    with pytest.raises(InputError, match="fitted to 33"):
        build_scaler("block")(x, columns)(torch.ones(2, 7))
    assert torch.isfinite(build_scaler("block")(torch.ones(5, 3))(torch.ones(5, 3))).all()
    with pytest.raises(InputError, match="width"):
        build_scaler("block", {"width": 2})
    with pytest.raises(InputError, match="no training rows"):
        build_scaler("block")(x[:0])
    x[7, 3] = torch.nan
    with pytest.raises(InputError, match="Training row 7 holds NaN"):
        build_scaler("block")(x, columns)


@pytest.mark.parametrize("name", scalers.names())
@pytest.mark.parametrize(("batch_size", "dim"), [(1, 5), (7, 67)])
def test_rows_scaled_once_have_the_bytes_of_rows_scaled_with_every_batch(name, batch_size, dim, monkeypatch):
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(300, 3 * (1 + 2 * dim), generator=generator)
    columns = build("panther", Prototypes(torch.randn(3, dim, generator=generator))).columns()
    scaler = build_scaler(name)(x, columns)
    held = trainer.ArraySource(x, {"row": torch.arange(300)}, batch_size, scaler=scaler)
    monkeypatch.setattr(trainer, "HELD_BYTES", 0)
    read = trainer.ArraySource(x, {"row": torch.arange(300)}, batch_size, scaler=scaler)
    object.__setattr__(read, "x", x.clone())
    x.fill_(torch.nan)  # what is held needs it no more
    for epoch in range(2):
        pairs = zip(held.epoch(epoch, 3), read.epoch(epoch, 3), strict=True)
        assert all(torch.equal(a["x"], b["x"]) and torch.equal(i["row"], j["row"]) for (a, i), (b, j) in pairs)


COUNT, DIM = 4, 5


def mixtures(rows: int = 30, seed: int = 0) -> torch.Tensor:
    """Embeddings (n, C (1 + 2 d)) of random mixtures; some prototypes are absent from some."""
    generator = torch.Generator().manual_seed(seed)
    weights = torch.rand(rows, COUNT, 1, generator=generator) ** 4
    weights[::3, 1] = 0.0
    weights /= weights.sum(1, keepdim=True)
    means = torch.randn(rows, COUNT, DIM, generator=generator) + 5
    variances = torch.rand(rows, COUNT, DIM, generator=generator)
    return torch.cat([weights, means, variances], -1).flatten(1)


@pytest.mark.parametrize(
    ("method", "options", "whole"),
    [
        ("panther", {}, True),
        ("panther", {"covariance": "tied"}, True),
        ("panther", {"readout": "wa"}, False),
        ("panther", {"readout": "top"}, False),
        ("ot", {}, False),
        ("protocounts", {}, False),
        ("deepsets", {}, False),
    ],
)
def test_only_whole_mixtures_are_share_weighted_and_others_are_balanced(method, options, whole):
    columns = build(method, Prototypes(torch.randn(COUNT, DIM)), options).columns()
    assert mixture_shape(columns) == ((COUNT, DIM) if whole else None)
    x = mixtures(20)[:, : len(columns)]
    weighted, balanced = (build_scaler(name)(x, columns) for name in ("share-weighted", "balanced"))
    assert (weighted.usual is not None) == whole
    if not whole:
        assert torch.equal(weighted.scale, balanced.scale)
        assert weighted.blocks(columns) is None


def test_coordinates_are_those_of_the_equation():
    x = mixtures()
    usual = usual_mixture([x], COUNT, DIM)
    result = share_weighted_coordinates(x.double(), usual).numpy()
    for row, one in zip(result, x.double().numpy().reshape(-1, COUNT, 1 + 2 * DIM), strict=True):
        expected = []
        for c, (share, *rest) in enumerate(one):
            mean, variance = np.array(rest[:DIM]), np.array(rest[DIM:])
            expected += [np.sqrt(share), *(np.sqrt(share) * (mean - usual.means[c].numpy()))]
            expected += [*(np.sqrt(share) * (variance - usual.variances[c].numpy()))]
        expected += [*(one[:, :1] * one[:, 1 : 1 + DIM]).sum(0)]
        np.testing.assert_allclose(row, expected, atol=1e-12)
    assert len(share_weighted_columns(COUNT, DIM)) == result.shape[1]


def test_parameters_of_absent_prototypes_have_no_weight():
    """The mean of an absent prototype is the prototype itself, or anything: it must not move the slide."""
    x = mixtures()
    scaler = build_scaler("share-weighted")(x, share_weighted_columns(COUNT, DIM)[: x.shape[1]])
    changed = x.clone().reshape(-1, COUNT, 1 + 2 * DIM)
    changed[::3, 1, 1:] = 1e3
    torch.testing.assert_close(scaler(changed.flatten(1)), scaler(x))
    balanced = build_scaler("balanced")(x, share_weighted_columns(COUNT, DIM)[: x.shape[1]])
    assert (balanced(changed.flatten(1)) - balanced(x)).abs().max() > 10
    changed[:, 2, 0] = 0.0  # a prototype that no training slide has
    scaler = build_scaler("share-weighted")(changed.flatten(1), share_weighted_columns(COUNT, DIM)[: x.shape[1]])
    changed[:, 2, 0] = 0.5
    assert bool(torch.isfinite(scaler(changed.flatten(1))).all())


def test_usual_parameters_weigh_slides_by_their_share_and_do_not_depend_on_the_blocks_of_rows():
    x = mixtures(50)
    usual = usual_mixture([x], COUNT, DIM)
    weights, means, _ = (t.double() for t in split(x, COUNT, DIM))
    torch.testing.assert_close(usual.means, (weights * means).sum(0) / weights.sum(0))
    torch.testing.assert_close(usual.parts.sum(0), (weights * means).sum(1).mean(0))  # together the usual slide's mean
    for one, other in zip(usual, usual_mixture(x.split(7), COUNT, DIM), strict=True):
        torch.testing.assert_close(one, other)

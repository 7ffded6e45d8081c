"""Share-weighted mixtures: small prototypes have small weights, the slide's mean is added."""

import numpy as np
import pytest
import torch

from panther.aggregators import build
from panther.models.scaling import (
    build_scaler,
    mixture_shape,
    share_weighted_columns,
    share_weighted_coordinates,
    split,
    usual_mixture,
)
from panther.types import Prototypes

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
    weighted, balanced = (build_scaler(name).fit(x, columns) for name in ("share-weighted", "balanced"))
    assert (weighted.usual is not None) == whole
    if not whole:
        assert torch.equal(weighted.scale, balanced.scale)
        assert weighted.blocks(columns) is None


def test_coordinates_are_those_of_the_equation():
    x = mixtures()
    usual = usual_mixture([x], COUNT, DIM)
    found = share_weighted_coordinates(x.double(), usual).numpy()
    for row, one in zip(found, x.double().numpy().reshape(-1, COUNT, 1 + 2 * DIM), strict=True):
        expected = []
        for c, (share, *rest) in enumerate(one):
            mean, variance = np.array(rest[:DIM]), np.array(rest[DIM:])
            expected += [np.sqrt(share), *(np.sqrt(share) * (mean - usual.means[c].numpy()))]
            expected += [*(np.sqrt(share) * (variance - usual.variances[c].numpy()))]
        expected += [*(one[:, :1] * one[:, 1 : 1 + DIM]).sum(0)]
        np.testing.assert_allclose(row, expected, atol=1e-12)
    assert len(share_weighted_columns(COUNT, DIM)) == found.shape[1]


def test_parameters_of_absent_prototypes_have_no_weight():
    """The mean of an absent prototype is the prototype itself, or anything: it must not move the slide."""
    x = mixtures()
    scaler = build_scaler("share-weighted").fit(x, share_weighted_columns(COUNT, DIM)[: x.shape[1]])
    changed = x.clone().reshape(-1, COUNT, 1 + 2 * DIM)
    changed[::3, 1, 1:] = 1e3
    torch.testing.assert_close(scaler(changed.flatten(1)), scaler(x))
    balanced = build_scaler("balanced").fit(x, share_weighted_columns(COUNT, DIM)[: x.shape[1]])
    assert (balanced(changed.flatten(1)) - balanced(x)).abs().max() > 10


def test_four_statistics_have_the_same_total_variance_on_the_training_rows():
    x = mixtures(60)
    columns = share_weighted_columns(COUNT, DIM)[: x.shape[1]]
    scaler = build_scaler("share-weighted").fit(x, columns)
    scaled, blocks = scaler(x), scaler.blocks(columns)
    totals = [float(scaled[:, blocks == b].var(0, correction=0).sum()) for b in dict.fromkeys(blocks.tolist())]
    assert totals == pytest.approx([scaled.shape[1] / 4] * 4, rel=1e-4)
    torch.testing.assert_close(scaled.mean(0), torch.zeros(scaled.shape[1]), atol=1e-4, rtol=0)


def test_usual_parameters_weigh_slides_by_their_share_and_do_not_depend_on_the_blocks_of_rows():
    x = mixtures(50)
    usual = usual_mixture([x], COUNT, DIM)
    weights, means, _ = (t.double() for t in split(x, COUNT, DIM))
    torch.testing.assert_close(usual.means, (weights * means).sum(0) / weights.sum(0))
    torch.testing.assert_close(usual.parts.sum(0), (weights * means).sum(1).mean(0))  # together the usual slide's mean
    for one, other in zip(usual, usual_mixture(x.split(7), COUNT, DIM), strict=True):
        torch.testing.assert_close(one, other)


def test_a_prototype_that_no_training_slide_has_stays_finite():
    x = mixtures().reshape(-1, COUNT, 1 + 2 * DIM)
    x[:, 2, 0] = 0.0
    scaler = build_scaler("share-weighted").fit(
        x.flatten(1), share_weighted_columns(COUNT, DIM)[: COUNT * (1 + 2 * DIM)]
    )
    x[:, 2, 0] = 0.5  # a test slide that has it
    assert bool(torch.isfinite(scaler(x.flatten(1))).all())


def test_float64_gives_the_digits_that_attributions_need():
    x = mixtures()
    scaler = build_scaler("share-weighted").fit(x, share_weighted_columns(COUNT, DIM)[: x.shape[1]])
    exact = scaler.double()(x)
    assert exact.dtype == torch.float64
    torch.testing.assert_close(exact.float(), scaler(x), rtol=1e-4, atol=1e-4)

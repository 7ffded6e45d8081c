"""Comparing prototypes: sameness up to order, appearance, disappearance, splits."""

import itertools

import pytest
import torch

from panther.errors import InputError
from panther.prototypes.compare import compare
from panther.types import Projection, Prototypes

A = Prototypes(torch.eye(5)[:4] * 10 + 3, encoder="uni")


def test_a_permuted_and_slightly_moved_set_is_the_same():
    order = [2, 0, 3, 1]
    b = Prototypes(A.centroids[order] + 0.1, encoder="uni")
    result = compare(A, b)
    assert dict(result.same) == {c: order.index(c) for c in range(4)}
    assert result.appeared == result.vanished == ()
    assert result.split == result.merged == {}
    assert result.match.cosine.min() > 0.99
    a, b = (Prototypes(torch.randn(5, 3, generator=torch.Generator().manual_seed(s))) for s in (1, 2))
    result = compare(a, b)
    cheapest = min(sum(float(result.distance[i, p[i]]) for i in range(5)) for p in itertools.permutations(range(5)))
    assert float(result.match.distance.sum()) == pytest.approx(cheapest)


def test_prototypes_that_appeared_vanished_or_split_are_listed():
    shifted = A.centroids[1] + torch.tensor([0.0, 0.0, 0.0, 0.0, 1.0])
    b = Prototypes(
        torch.stack([A.centroids[0], A.centroids[1] - 0.5, shifted, A.centroids[2], torch.full((5,), 40.0)]),
        encoder="uni",
    )
    result = compare(A, b)
    assert result.vanished == (3,)
    assert result.appeared == (4,)
    assert result.split == {1: (1, 2)}
    back = compare(b, A)
    assert back.merged == {1: (1, 2)}
    assert back.appeared == (3,)


def test_one_prototype_is_not_the_same_as_whatever_is_nearest():
    far, near = (Prototypes(A.centroids[:1] + shift, encoder="uni") for shift in (20.0, 0.1))
    assert compare(A, far).same == compare(far, A).same == ()
    assert compare(A, far).appeared == (0,)
    assert dict(compare(A, near).same) == dict(compare(near, near).same) == {0: 0}
    assert compare(near, far).same == ()


@pytest.mark.parametrize(
    "other",
    [
        Prototypes(A.centroids, encoder="conch"),
        Prototypes(A.centroids[:, :3]),
        Prototypes(A.centroids, projection=Projection(normalise=True)),
        Prototypes(A.centroids, projection=Projection(mean=torch.zeros(8), basis=torch.randn(8, 5))),
    ],
    ids=["encoder", "dimension", "normalised", "pca"],
)
def test_prototypes_of_different_spaces_are_refused(other):
    with pytest.raises(InputError):
        compare(A, other)

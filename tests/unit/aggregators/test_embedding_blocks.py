"""Optional blocks of PANTHER's embedding, computed from the same fit and from coordinates."""

from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from mixture_bags import mixture_bag
from panther import Panther, store
from panther.aggregators import build, panther
from panther.aggregators.embed import Embedder, embed, embed_grid
from panther.engine import LOCAL
from panther.errors import InputError
from panther.models.blocks import Block
from panther.models.settings import Named
from panther.statistics.neighbours import neighbourhood
from panther.storage.bags import as_bags, concatenate, list_bags
from panther.types import Bag, PatchSpec, Prototypes
from panther.verbs.embed import embed_cohort

D, C, STEP = 6, 4, 512
PROTOTYPES = Prototypes(mixture_bag(1, D, C)[1], within_variance=torch.ones(D))
KNOWN = PatchSpec(size=256, size_level0=STEP)


def corners(count: int, step: float = STEP) -> np.ndarray:
    number = np.arange(count)
    return np.stack([number % 9, number // 9], 1) * step


def a_bag(name: str = "s", count: int = 60, coords: np.ndarray | None = None, spec: PatchSpec = KNOWN) -> Bag:
    where = torch.from_numpy(corners(count) if coords is None else coords)
    return Bag(name, mixture_bag(count, D, C, seed=len(name))[0], where, spec)


def space_of(bag: Bag, **options: object) -> torch.Tensor:
    return embed(bag, PROTOTYPES, blocks=["space"], **options).vector[C * (1 + 2 * D) :]


@pytest.mark.parametrize("readout", ["all", "wa", "top"])
def test_blocks_leave_the_mixture_unchanged_and_name_every_number(readout: str) -> None:
    both = embed(a_bag(), PROTOTYPES, blocks=["space"], readout=readout)
    alone = embed(a_bag(), PROTOTYPES, readout=readout)
    width = len(alone.vector)
    assert torch.equal(both.vector[:width], alone.vector)
    assert both.tokens is None
    columns = build("panther", PROTOTYPES, blocks=["space"], readout=readout).columns()[width:]
    assert columns[:3] == [(0, "touch", 0), (0, "touch", 1), (0, "touch", 2)]
    assert columns[C * (C + 1) // 2 - 1] == (C - 1, "touch", C - 1)
    assert [statistic for _, statistic, _ in columns[C * (C + 1) // 2 :: C]] == ["regions", "size", "border"]
    assert len(columns) == len(both.vector) - width == C * (C + 1) // 2 + 3 * C


def test_the_numbers_are_those_of_the_posteriors() -> None:
    bag = a_bag()
    q = embed(bag, PROTOTYPES, with_assignment=True).assignment
    found = neighbourhood(q, bag.layout(), corners=True)
    touch, rest = space_of(bag).double().split([C * (C + 1) // 2, 3 * C])
    torch.testing.assert_close(touch, found.enrichment()[tuple(torch.triu_indices(C, C))], rtol=1e-5, atol=1e-6)
    expected = torch.cat([found.region_number(), found.region_size(), found.border()])
    torch.testing.assert_close(rest, expected, rtol=1e-5, atol=1e-6)


def test_order_of_rows_and_half_precision_change_nothing() -> None:
    bag, order = a_bag(), torch.randperm(60, generator=torch.Generator().manual_seed(0))
    shuffled = replace(bag, features=bag.features[order], places=bag.places()[order])
    torch.testing.assert_close(space_of(shuffled), space_of(bag), rtol=0, atol=1e-5)
    half = replace(bag, features=bag.features.half())
    torch.testing.assert_close(space_of(half), space_of(bag), rtol=0, atol=0.05)
    moved = replace(bag, places=bag.places()[order])
    assert (space_of(moved) - space_of(bag)).abs().max() > 0.05


@pytest.mark.parametrize(
    ("spec", "coords", "step", "inferred"),
    [
        (KNOWN, corners(20), STEP, False),
        (PatchSpec(size=256, size_level0=STEP, overlap=64), corners(20, 384), 384, False),
        (PatchSpec(mpp=0.5, size=224, coords_unit="um"), corners(20, 112.0), 112, False),
        (PatchSpec(), corners(20, 300), 300, True),
        (PatchSpec(size_level0=STEP), corners(20, 2 * STEP), 2 * STEP, True),  # every other patch was left out
        (PatchSpec(size_level0=STEP), corners(1), STEP, False),
        (PatchSpec(), corners(1), 1, False),
    ],
    ids=["stated", "overlap", "micrometres", "shown", "gaps", "one patch", "one patch, nothing stated"],
)
def test_the_step_is_what_the_file_says_or_what_coordinates_show(spec, coords, step, inferred) -> None:
    places = a_bag(count=len(coords), coords=coords, spec=spec).layout()
    assert (places.step, places.inferred, places.lengths) == (step, inferred, (len(coords),))
    assert torch.isfinite(space_of(a_bag(count=len(coords), coords=coords, spec=spec))).all()


def test_slides_of_a_patient_have_no_contacts() -> None:
    one, two = a_bag("a", 40), a_bag("bb", 30, corners(30, 256), PatchSpec(size=256, size_level0=256))
    both = concatenate("p", [one, two])
    assert both.layout().lengths == both.lengths == (40, 30)
    q = embed(both, PROTOTYPES, with_assignment=True).assignment
    first, second = (neighbourhood(*slide, corners=True) for slide in ((q[:40], one.layout()), (q[40:], two.layout())))
    expected = first.merge(second).enrichment()[tuple(torch.triu_indices(C, C))]
    torch.testing.assert_close(space_of(both)[: C * (C + 1) // 2].double(), expected, rtol=1e-5, atol=1e-6)


def test_a_slide_without_coordinates_fails_and_the_others_continue() -> None:
    bags = [a_bag("a"), replace(a_bag("bb"), places=None), a_bag("ccc")]
    with pytest.warns(UserWarning, match="Left out of the embeddings: 1"):
        table = embed_cohort(bags, PROTOTYPES, blocks=["space"])
    assert table.samples == ["a", "ccc"]
    assert "bb: the block `space` reads where patches lie" in table.failures["bb"]
    patient = concatenate("p", bags[:2])
    with pytest.raises(InputError, match="there are no coordinates"):
        embed(patient, PROTOTYPES, blocks=["space"])
    bad = corners(60).astype(float)
    bad[3] = np.nan
    with pytest.raises(InputError, match="coordinates hold NaN"):
        space_of(a_bag(coords=bad))
    scattered = np.arange(60)[:, None] * [700, 900]
    with pytest.raises(InputError, match="slide s: the size of patches is unknown"):
        space_of(a_bag(coords=scattered, spec=PatchSpec()))


def test_names_of_blocks_are_checked() -> None:
    with pytest.raises(InputError, match="no block 'spase'; did you mean 'space'"):
        build("panther", PROTOTYPES, blocks=["spase"])
    for wrong in (3, {"space": 1}, True):
        with pytest.raises(InputError, match="expected a list of names"):
            build("panther", PROTOTYPES, blocks=wrong)
    for same, blocks in (("space", ["space"]), ([], ())):
        assert (
            build("panther", PROTOTYPES, blocks=same).columns() == build("panther", PROTOTYPES, blocks=blocks).columns()
        )


def test_the_mixture_and_its_blocks_share_one_fit_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    fits, fit = [], panther.fit_mixture
    monkeypatch.setattr(panther, "fit_mixture", lambda *a, **k: fits.append(1) or fit(*a, **k))
    plain, space = Embedder(PROTOTYPES), Embedder(PROTOTYPES, "panther", {"blocks": ["space"]})
    for embedders in ([plain, space], [space, plain]):
        fits.clear()
        tables = list(embed_grid(as_bags([a_bag()]).refs, embedders, LOCAL))
        assert len(fits) == 1
        alone = [embed(a_bag(), PROTOTYPES, **e.options).vector.numpy() for e in embedders]
        for table, vector in zip(tables, alone, strict=True):
            np.testing.assert_array_equal(np.asarray(table.vectors)[0], vector)


def test_the_estimator_reads_blocks_of_bags_with_coordinates() -> None:
    found = Panther.from_prototypes(PROTOTYPES, blocks=("space",))
    row = found.transform([a_bag()])[0]
    np.testing.assert_array_equal(row, embed(a_bag(), PROTOTYPES, blocks=["space"]).vector.numpy())
    assert found.get_feature_names_out()[C * (1 + 2 * D) + 1] == "C0:touch:1"
    with pytest.raises(InputError, match="there are no coordinates"):
        found.transform([a_bag().features])


def test_patches_that_were_moved_are_embedded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "UNSETTLED_SECONDS", 0.0)
    bag, feats = a_bag(), tmp_path / "feats"
    feats.mkdir()

    def write(coords: np.ndarray) -> None:
        with h5py.File(feats / "s.h5", "w") as file:
            file["features"], file["coords"] = bag.features.numpy(), coords
            file["coords"].attrs["patch_size_level0"] = STEP

    def embedded() -> np.ndarray:
        return embed_cohort(list_bags(feats), PROTOTYPES, blocks="space").vectors

    write(corners(60))
    first = np.array(embedded())
    write(corners(60).max(0) - corners(60))
    np.testing.assert_allclose(embedded(), first, atol=1e-5)  # rotated: the same contacts
    write(np.random.default_rng(0).permutation(corners(60)))
    assert np.abs(np.asarray(embedded()) - first).max() > 0.05


def test_mixture_contacts_and_regions_are_scaled_separately() -> None:
    parts = Block(Named(name="panther", options={"blocks": ["space"]}), PROTOTYPES).parts()
    assert [len(part) for part in parts] == [C * (1 + 2 * D), C * (C + 1) // 2, 3 * C]
    assert {statistic for _, statistic, _ in parts[1]} == {"touch"}
    (whole,) = Block(Named(name="panther"), PROTOTYPES).parts()
    assert len(whole) == C * (1 + 2 * D)

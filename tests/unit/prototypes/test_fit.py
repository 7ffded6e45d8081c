"""Prototypes from cohorts: what is learned, what is reported, what is refused."""

import pandas as pd
import pytest
import torch

from mixture_bags import mixture_bag
from panther import fit_prototypes
from panther.errors import InputError
from panther.prototypes import KMeansSettings, fit_bags
from panther.storage.prototypes import save_prototypes
from panther.types import Bag

SMALL = {"sample": 2000, "restarts": 3}


def cohort(slides=6, n=200, d=8, c=4, separation=4.0, **extra):
    centres = mixture_bag(1, d, c, separation=separation)[1]
    generator = torch.Generator().manual_seed(7)
    bags = []
    for i in range(slides):
        labels = torch.randint(c, (n,), generator=generator)
        bags.append(Bag(f"s{i}", centres[labels] + torch.randn(n, d, generator=generator), **extra))
    return bags, centres


def test_well_separated_tissues_are_found():
    bags, centres = cohort()
    p = fit_bags(bags, KMeansSettings(4, **SMALL)).prototypes
    distance = torch.cdist(p.centroids, centres)
    assert sorted(distance.argmin(1).tolist()) == [0, 1, 2, 3]
    assert distance.amin(1).max() < 0.5
    torch.testing.assert_close(p.within_variance, torch.ones(8), rtol=0.1, atol=0.1)
    assert int(p.occupancy.sum()) == 1200
    assert p.occupancy.tolist() == sorted(p.occupancy.tolist(), reverse=True)  # C0 is the most common
    assert p.diagnostics["warnings"] == []


def test_the_pooled_variance_is_that_around_the_final_centroids():
    bags, _ = cohort(separation=0.7)
    p = fit_bags(bags, KMeansSettings(4, **SMALL)).prototypes
    x = torch.cat([bag.features for bag in bags]).double()
    nearest = torch.cdist(x, p.centroids.double()).argmin(1)
    residual = x - p.centroids.double()[nearest]
    torch.testing.assert_close(p.within_variance.double(), residual.square().mean(0), rtol=1e-5, atol=1e-6)
    assert torch.equal(p.occupancy.long(), nearest.bincount(minlength=4))


def test_the_same_seed_and_input_give_the_same_bytes(tmp_path):
    bags, _ = cohort(separation=0.7)
    for name in "ab":
        save_prototypes(fit_bags(bags, KMeansSettings(5, seed=1, **SMALL)).prototypes, tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    one = fit_bags(bags, KMeansSettings(5, seed=2, **SMALL)).prototypes
    save_prototypes(one, tmp_path / "c")
    assert (tmp_path / "a").read_bytes() != (tmp_path / "c").read_bytes()
    bags[2] = Bag("s2", bags[2].features + 1e-3)
    assert fit_bags(bags, KMeansSettings(5, seed=2, **SMALL)).prototypes.parents != one.parents


def test_pca_keeps_the_directions_of_largest_variance():
    from sklearn.decomposition import PCA

    bags, _ = cohort()
    p = fit_bags(bags, KMeansSettings(4, pca=3, sample=1200)).prototypes
    x = torch.cat([bag.features for bag in bags]).numpy()
    ours = p.projection(torch.from_numpy(x)).numpy()
    theirs = PCA(3).fit_transform(x)
    assert abs(ours) == pytest.approx(abs(theirs), abs=1e-3)


def test_a_slide_with_nan_is_left_out_and_named_with_its_row():
    bags, _ = cohort()
    bad = bags[1].features.clone()
    bad[123, 4] = torch.nan
    bags[1] = Bag("s1", bad)
    for sample in (30, 2000):  # whether the row is in the sample or only met in the full pass
        fitted = fit_bags(bags, KMeansSettings(4, sample=sample, restarts=2))
        assert list(fitted.failures) == ["s1"]
        assert "row 123" in fitted.failures["s1"]
        assert "s1" not in fitted.prototypes.slides
        assert torch.isfinite(fitted.prototypes.centroids).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_numbers_too_large_to_square_in_float32_are_refused(dtype):
    bags, _ = cohort()
    whole = [Bag(bag.slide_id, (bag.features * 1e20).to(dtype)) for bag in bags]
    with pytest.raises(InputError, match="too large"):
        fit_bags(whole, KMeansSettings(4, sample=2000, restarts=2))
    large = bags[1].features.to(dtype)
    large[123, 4] = 1e300 if dtype == torch.float64 else 1e20
    for sample in (30, 2000):  # whether the row is in the sample or only met in the full pass
        fitted = fit_bags([bags[0], Bag("s1", large), *bags[2:]], KMeansSettings(4, sample=sample, restarts=2))
        assert list(fitted.failures) == ["s1"]
        assert fitted.prototypes.centroids.abs().max() < 1e3
        assert fitted.prototypes.diagnostics["inertia"] < 1e12  # which NaN is not


def test_a_slide_of_another_dimension_or_encoder_is_left_out_and_a_tie_refused():
    bags, _ = cohort(encoder="uni")
    odd = Bag("odd", torch.randn(50, 5), encoder="uni")
    other = Bag("other", torch.randn(50, 8), encoder="conch")
    fitted = fit_bags([*bags, odd, other], KMeansSettings(4, **SMALL))
    assert set(fitted.failures) == {"odd", "other"}
    assert "5" in fitted.failures["odd"]
    assert "conch" in fitted.failures["other"]
    with pytest.raises(InputError, match="features: "):
        fit_bags([bags[0], odd], KMeansSettings(2, **SMALL))


def test_slides_with_zero_patches_are_reported_and_do_no_harm():
    bags, _ = cohort()
    fitted = fit_bags([*bags, Bag("none", torch.empty(0, 8))], KMeansSettings(4, **SMALL))
    assert fitted.empty == ["none"]
    assert fitted.failures == {}
    with pytest.raises(InputError, match="features: "):
        fit_bags([Bag("none", torch.empty(0, 8))], KMeansSettings(1, sample=1))


def test_collapsed_prototypes_are_reported_and_a_single_one_dominates_no_slide():
    far = torch.full((1, 4), 90.0)
    p = fit_bags(
        [Bag("a", torch.cat([0.001 * torch.randn(1000, 4), far, -far]))], KMeansSettings(3, **SMALL)
    ).prototypes
    assert any("collapsed" in sentence for sentence in p.diagnostics["warnings"])
    p = fit_bags(cohort()[0], KMeansSettings(1, **SMALL)).prototypes
    assert (p.diagnostics["warnings"], p.diagnostics["dominated_slides"]) == ([], {})


def test_more_prototypes_than_patches_are_refused():
    with pytest.raises(InputError, match="n_prototypes: 16"):
        fit_bags([Bag("a", torch.randn(3, 4))], KMeansSettings())
    with pytest.raises(InputError, match=r"^sample: found 20000"):
        KMeansSettings(30_000)


def test_fit_prototypes_takes_arrays_and_a_table_and_warns_of_missing_slides():
    bags, _ = cohort()
    settings = {"sample": 400, "restarts": 2, "passes": 1, "seed": 1}
    arrays = {bag.sample: bag.features[0 : len(bag)].numpy() for bag in bags}
    whole = fit_prototypes(arrays, 4, **settings)
    torch.testing.assert_close(whole.centroids, fit_bags(bags, KMeansSettings(4, **settings)).prototypes.centroids)
    train = pd.DataFrame({"slide_id": [*list(arrays)[:2], "gone"], "split": ["train", "train", "train"]})
    with pytest.warns(UserWarning, match="Left out of the prototypes: 1, e.g. gone: "):
        part = fit_prototypes(arrays, 4, table=train, split="train", **settings)
    assert part.slides == tuple(list(arrays)[:2])
    with pytest.warns(UserWarning, match="none: zero patches"):
        fit_prototypes({**arrays, "none": torch.empty(0, 8)}, 4, **settings)

"""Slides moved onto the training slides before prototypes see them."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

import panther
from panther.errors import InputError
from panther.prototypes import KMeansSettings, fit_bags, fit_many
from panther.prototypes.centre import Sites, add_sites, sites_by
from panther.storage.bags import as_bags, concatenate
from panther.storage.clinical import read_clinical
from panther.types import Bag

D = 6
TISSUES = np.random.default_rng(9).normal(size=(3, D)) * 4


def slide(name, seed, shift=0.0, scale=1.0, n=150, dtype=np.float32):
    """Three tissues in proportions of the slide's own, seen through the stain of a site."""
    rng = np.random.default_rng(seed)
    x = TISSUES[rng.choice(3, n, p=rng.dirichlet([8, 8, 8]))] + rng.normal(size=(n, D)) * 0.3
    return Bag(name, torch.as_tensor((x * scale + shift).astype(dtype)))


STAIN = {"A": (0.0, 1.0), "B": (np.linspace(-9, 9, D), 1.0), "new": (np.linspace(12, -12, D), 1.0)}


def cohort(site, count, seed=0, **how):
    shift, scale = STAIN[site]
    return [slide(f"{site}{i}", [seed, ord(site[0]), i], shift, scale, **how) for i in range(count)]


@pytest.fixture(scope="module")
def train():
    return cohort("A", 6) + cohort("B", 6)


SITES = Sites({f"{site}{i}": site for site in STAIN for i in range(6)})
SETTINGS = KMeansSettings(3, passes=1, restarts=3)


def shares(prototypes, bags):
    return np.stack([panther.embed(bag, prototypes).aux["weights"].numpy() for bag in bags])


def true_shares(bags, site):
    shift, scale = STAIN[site]
    nearest = [((bag.features.numpy() - shift) / scale)[:, None] - TISSUES for bag in bags]
    return np.stack([np.bincount((x**2).sum(-1).argmin(1), minlength=3) / len(x) for x in nearest])


@pytest.mark.parametrize("centre", ["slide", "site"])
def test_the_stain_of_a_site_no_longer_decides_the_prototype(train, centre):
    plain = fit_bags(train, SETTINGS).prototypes
    aligned = fit_bags(train, replace(SETTINGS, centre=centre), sites=SITES).prototypes
    sites = [bag.slide_id[0] for bag in train]
    spread = {
        name: max(float(np.ptp([s[[x == site for x in sites]].mean(0)[c] for site in "AB"])) for c in range(3))
        for name, s in {"plain": shares(plain, train), "aligned": shares(aligned, train)}.items()
    }
    assert spread["aligned"] < 0.2 < 0.6 < spread["plain"]


def test_a_site_that_comes_later_is_centred_on_the_mean_of_its_slides(train):
    fitted = fit_bags(train, replace(SETTINGS, centre="site"), sites=SITES).prototypes
    new = cohort("new", 6)
    with pytest.raises(InputError, match="new0"):
        panther.embed(new[0], fitted)
    grown, notes = add_sites(fitted, new, SITES)
    assert len(notes) == 1
    assert fitted.content_hash() == grown.content_hash()  # embeddings of both stand on the same prototypes
    assert len(fitted.alignment.sites) == 2
    with pytest.raises(InputError, match="A0: "):  # which was of site A
        add_sites(fitted, as_bags(train[:1]).refs, Sites({"A0": "B"}))
    more, _ = add_sites(fitted, [*new, *cohort("A", 3, seed=5)], SITES)
    torch.testing.assert_close(more.alignment.shift[:2], fitted.alignment.shift, rtol=0, atol=0)
    moved = torch.stack([grown.prepared(bag).features[0:150].mean(0) for bag in new])
    torch.testing.assert_close(moved.mean(0), fitted.alignment.mean, atol=1e-4, rtol=1e-4)
    order = [int(np.linalg.norm(TISSUES - c, axis=1).argmin()) for c in grown.centroids.numpy()]
    assert sorted(order) == [0, 1, 2]
    np.testing.assert_allclose(shares(grown, new), true_shares(new, "new")[:, order], atol=0.15)


def test_patches_are_moved_by_the_shift_of_their_site(train):
    fitted = fit_bags(train, replace(SETTINGS, centre="site"), sites=SITES).prototypes
    shift = fitted.alignment.shift[fitted.alignment.sites.index("B")]
    of_b = torch.stack([bag.features.double().mean(0) for bag in train[6:]]).mean(0)
    of_all = torch.stack([bag.features.double().mean(0) for bag in train]).mean(0)
    torch.testing.assert_close(shift.double(), of_b - of_all, atol=1e-5, rtol=1e-5)
    wanted = train[8].features - shift
    torch.testing.assert_close(fitted.prepared(train[8]).features[0:150], wanted, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(fitted.prepared(train[8]).features[7:21:2], wanted[7:21:2], atol=1e-5, rtol=1e-5)


def test_slides_of_a_patient_are_centred_one_by_one(train):
    fitted = fit_bags(train, replace(SETTINGS, centre="slide")).prototypes
    patient = concatenate("P", [train[0], train[7], train[2]])
    one = fitted.prepared(patient).features
    wanted = torch.cat([fitted.prepared(bag).features[0:150] for bag in (train[0], train[7], train[2])])
    torch.testing.assert_close(one[0:450], wanted)
    torch.testing.assert_close(torch.cat([one[i : i + 77] for i in range(0, 450, 77)]), wanted)
    torch.testing.assert_close(wanted[150:300].mean(0), fitted.alignment.mean, atol=1e-5, rtol=1e-5)
    far = replace(train[0], features=train[0].features + 100)  # any shift is undone
    one, other = (panther.embed(bag, fitted).vector for bag in (far, train[0]))
    torch.testing.assert_close(one, other, atol=2e-3, rtol=1e-3)


def test_features_in_memory_stay_as_they_are_and_half_precision_is_aligned(train):
    for dtype in (torch.float64, torch.float16):
        bags = [replace(bag, features=bag.features.to(dtype)) for bag in train]
        before = [bag.features.clone() for bag in bags]
        fitted = fit_bags(bags, replace(SETTINGS, centre="site"), sites=SITES).prototypes
        assert np.isfinite(panther.embed(bags[0], fitted).vector.numpy()).all()
        assert all(torch.equal(bag.features, kept) for bag, kept in zip(bags, before, strict=True))
    assert fitted.prepared(bags[0]).features[0:3].dtype == torch.float32


@pytest.mark.parametrize("how", [{"centre": "slide"}, {"centre": "site"}, {"centre": "site", "pca": 4}])
def test_a_file_keeps_the_alignment(tmp_path, train, how):
    fitted = fit_bags(train, replace(SETTINGS, **how), sites=SITES).prototypes
    grown, _ = add_sites(fitted, cohort("new", 2), SITES)
    panther.save_prototypes(grown, tmp_path / "p.safetensors")
    again = panther.load_prototypes(tmp_path / "p.safetensors")
    assert again.content_hash() == fitted.content_hash()
    assert again.alignment.settings() == grown.alignment.settings()
    for name, tensor in grown.alignment.tensors().items():
        assert torch.equal(again.alignment.tensors()[name], tensor)
    bag = cohort("new", 1)[0]
    torch.testing.assert_close(panther.embed(bag, again).vector, panther.embed(bag, grown).vector, rtol=0, atol=0)


def test_a_fold_is_aligned_by_its_training_slides_alone(train):
    """Fits side by side give what each gives alone, and another test slide changes nothing."""
    folds = [train[:4] + train[6:10], train[2:6] + train[8:]]
    settings = replace(SETTINGS, centre="site")
    together = fit_many([(fold, settings) for fold in folds], sites=SITES)
    for fold, fitted in zip(folds, together, strict=True):
        alone = fit_bags(fold, settings, sites=SITES).prototypes
        assert fitted.prototypes.content_hash() == alone.content_hash()
        assert fitted.prototypes.parents == alone.parents
        assert set(alone.slides) == {bag.slide_id for bag in fold}
        assert fit_bags(fold, SETTINGS).prototypes.parents == alone.parents  # the features as they were
    assert together[0].prototypes.content_hash() != together[1].prototypes.content_hash()


def test_a_slide_with_a_nan_is_left_out_and_does_not_affect_others(train):
    bad = slide("A5", 3)
    bad.features[4, 2] = float("nan")
    settings = replace(SETTINGS, centre="site")
    with_bad = fit_bags([*train[:5], bad, *train[6:]], settings, sites=SITES)
    without = fit_bags([*train[:5], *train[6:]], settings, sites=SITES)
    assert "A5" in with_bad.failures
    torch.testing.assert_close(with_bad.prototypes.alignment.shift, without.prototypes.alignment.shift)


def table(**columns):
    return pd.DataFrame({"slide_id": ["s1", "s2", "s3"], "case_id": ["p1", "p1", "p2"], **columns})


def test_sites_are_known_by_slide_and_by_patient_of_one_site(train):
    assert sites_by(read_clinical(table(site_id=["x", "x", "y"]))).of == {"s1": "x", "s2": "x", "s3": "y", "p1": "x", "p2": "y"}  # fmt: skip
    sites = sites_by(read_clinical(table(site_id=["x", "z", "y"])))
    assert sites.of == {"s1": "x", "s2": "z", "s3": "y", "p2": "y"}
    for wrong, culprit in (
        (lambda: sites.of_all(["p2", "p1"]), "p1"),
        (lambda: KMeansSettings(centre="hospital"), "centre"),
        (lambda: panther.fit_prototypes(train, 3, centre="site"), "table"),
        (lambda: sites_by(read_clinical(table())), "table"),
    ):
        with pytest.raises(InputError, match=culprit):
            wrong()

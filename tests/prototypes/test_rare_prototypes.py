"""Rare prototypes: a small lesion gets one, it stays there, and the cost is said."""

import json

import numpy as np
import pytest
import torch

from cli.running import Runner
from mixture_bags import mixture_bag
from panther.errors import InputError
from panther.prototypes import KMeansSettings, fit_bags, fit_prototypes
from panther.storage.prototypes import load_prototypes, save_prototypes
from panther.types import Bag

SMALL = {"sample": 4000, "restarts": 2, "passes": 2}


def cohort(slides=10, n=500, d=12, lesion=4):
    """Four wide tissues, and in every slide a few patches of a narrow one."""
    centres = mixture_bag(1, d, 4, separation=2.0)[1]
    place = centres.mean(0) + torch.linspace(4, -4, d)
    generator = torch.Generator().manual_seed(3)
    bags = []
    for i in range(slides):
        common = centres[torch.randint(4, (n - lesion,), generator=generator)]
        wide = common + 1.5 * torch.randn(n - lesion, d, generator=generator)
        bags.append(Bag(f"s{i}", torch.cat([wide, place + 0.3 * torch.randn(lesion, d, generator=generator)])))
    return bags, place


def test_a_lesion_of_less_than_a_hundredth_gets_a_prototype_and_keeps_it():
    bags, place = cohort()
    plain = fit_bags(bags, KMeansSettings(6, **SMALL)).prototypes
    kept = fit_bags(bags, KMeansSettings(6, rare=2, **SMALL)).prototypes
    distance = {name: (p.centroids - place).norm(dim=1) for name, p in (("plain", plain), ("kept", kept))}
    assert float(distance["kept"].min()) < 2.5 < 5 < float(distance["plain"].min())
    about = kept.diagnostics["rare"]
    assert int(distance["kept"].argmin()) in about["prototypes"]
    assert len(about["prototypes"]) == 2
    x = torch.cat([bag.features for bag in bags])
    label = torch.cdist(x, kept.centroids).argmin(1)
    share = torch.isin(label, torch.tensor(about["prototypes"])).double().mean()
    assert about["share"] == pytest.approx(float(share), abs=1e-6)
    assert "rare" not in plain.diagnostics


def test_the_cost_is_what_the_other_patches_lose():
    bags, _ = cohort()
    settings = {"sample": 5000, "restarts": 2, "passes": 0}  # the sample is the whole cohort
    plain = fit_bags(bags, KMeansSettings(6, **settings)).prototypes
    kept = fit_bags(bags, KMeansSettings(6, rare=2, **settings)).prototypes
    x = torch.cat([bag.features for bag in bags]).double()
    nearest, label = torch.cdist(x, kept.centroids.double()).square().min(1)
    about = kept.diagnostics["rare"]
    rest = ~torch.isin(label, torch.tensor(about["prototypes"]))
    before = torch.cdist(x, plain.centroids.double()).square().amin(1)
    cost = about["distance"]
    assert cost["with_them"] == pytest.approx(float(nearest[rest].mean()), rel=1e-4)
    assert cost["without"] == pytest.approx(float(before[rest].mean()), rel=1e-4)
    assert f"{abs(cost['with_them'] / cost['without'] - 1):.1%}" in about["sentence"]


def test_the_same_seed_gives_the_same_bytes_and_the_file_keeps_all(tmp_path):
    bags, _ = cohort()
    for name in "ab":
        save_prototypes(fit_bags(bags, KMeansSettings(6, rare=2, **SMALL)).prototypes, tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    back = load_prototypes(tmp_path / "a")
    assert back.settings["rare"] == 2
    assert back.diagnostics["rare"]["prototypes"]
    assert back.surprise.shape == (3, 2)


def test_what_makes_no_sense_is_refused():
    with pytest.raises(InputError, match="leaves none for common"):
        KMeansSettings(4, rare=4)
    with pytest.raises(InputError, match="rare"):
        KMeansSettings(4, rare=-1)
    points = torch.tensor([0.0, 1.0, 100.0]).repeat_interleave(torch.tensor([400, 150, 50]))
    with pytest.raises(InputError, match="too alike to give 2 rare"):
        fit_prototypes([Bag("a", points.unsqueeze(1))], n_prototypes=3, rare=2)


def test_the_command_says_what_rare_prototypes_cost(tmp_path, monkeypatch, capsys):
    bags, _ = cohort(slides=4)
    (tmp_path / "feats").mkdir()
    for bag in bags:
        np.save(tmp_path / "feats" / f"{bag.slide_id}.npy", bag.features.numpy())
    output = tmp_path / "p.safetensors"
    run = Runner(monkeypatch, capsys)
    out, _ = run("prototypes", tmp_path / "feats", "-o", output, "-C", 6, "--rare", 2, "-j", 1, "--json")
    about = json.loads(out)["diagnostics"]["rare"]
    assert "are kept for rare morphology" in about["sentence"]
    assert load_prototypes(output).diagnostics["rare"] == about
    out, err = run("prototypes", tmp_path / "feats", "-o", tmp_path / "q", "-C", 2, "--rare", 2, code=2)
    assert "leaves none for common morphology" in err
    assert not (tmp_path / "q").exists()

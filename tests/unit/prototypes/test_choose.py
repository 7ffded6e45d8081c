"""Choosing C: separated clusters, no clusters, and real tissue."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from panther import choose_c
from panther.errors import InputError
from panther.prototypes import KMeansSettings
from panther.prototypes.choose import compare_numbers
from panther.types import Bag

FAST = KMeansSettings(sample=3000, restarts=3)
TILES_PER_CLASS, PATIENTS = 80, 24


def cohort(tissues, d=24, slides=12, n=250, separation=2.0, seed=0):
    rng = np.random.default_rng(seed)
    centres = rng.normal(0, separation, (tissues, d))
    return [
        Bag(
            f"s{i}",
            torch.tensor(
                centres[rng.choice(tissues, n, p=rng.dirichlet(np.ones(tissues)))] + rng.normal(size=(n, d))
            ).float(),
        )
        for i in range(slides)
    ]


@pytest.fixture(scope="module")
def real_patients(shared_tiles) -> list[Bag]:
    """Real H&E tiles of three classes, encoded by the embedded encoder, dealt out to made-up patients."""
    pytest.importorskip("timm")
    from PIL import Image

    from panther.encoders import load_encoder

    encoder = load_encoder("lite0")
    size = encoder.about.size
    paths = [p for kind in sorted(shared_tiles.iterdir()) for p in sorted(kind.glob("*.jpg"))[:TILES_PER_CLASS]]
    pixels = [np.asarray(Image.open(p).convert("RGB").resize((size, size))) for p in paths]
    x = torch.cat([encoder(np.stack(pixels[i : i + 32])) for i in range(0, len(pixels), 32)]).float()
    patient = np.random.default_rng(0).permutation(np.arange(len(x)) % PATIENTS)
    return [Bag(f"p{i}", x[torch.as_tensor(patient == i)]) for i in range(PATIENTS)]


SLOW = pytest.mark.slow


@pytest.mark.parametrize("tissues", [4, pytest.param(7, marks=SLOW), pytest.param(11, marks=SLOW)])
def test_the_true_number_of_well_separated_tissues_is_found(tissues):
    choice = compare_numbers(cohort(tissues), (2, 20), FAST)
    assert abs(choice.recommended - tissues) <= 1
    assert not choice.still_rising
    assert f"C = {choice.recommended}" in choice.sentence
    result = next(c for c in choice.candidates if c.n_prototypes == choice.recommended)
    assert result.stability_halves > 0.95
    assert result.come_back >= 0.9 * choice.recommended


@pytest.mark.slow
def test_on_real_tissue_reproducibility_decides_and_not_a_rising_likelihood(real_patients):
    choice = compare_numbers(real_patients, (2, 16), KMeansSettings(restarts=3))
    by_number = {c.n_prototypes: c for c in choice.candidates}
    best = max(by_number, key=lambda c: by_number[c].held_out)
    assert best >= 10  # the likelihood asks for many
    assert by_number[best].come_back < 0.3 * best  # of which few are found in both halves
    assert by_number[best].stability_halves < 0.4
    assert choice.recommended in (2, 3, 4)  # adenocarcinoma, squamous carcinoma, normal lung
    assert choice.supported is not None
    assert choice.supported[1] < 8
    assert "come back" in choice.sentence
    assert any("What more buys" in remark for remark in choice.remarks)


def test_a_likelihood_that_still_rises_and_a_range_that_is_too_narrow_are_remarked():
    choice = compare_numbers(cohort(12), (2, 6), FAST)
    assert choice.still_rising
    assert any("still rises" in remark for remark in choice.remarks)
    assert choice.candidates[0].gain == 0 < choice.candidates[1].gain  # another tissue
    choice = compare_numbers(cohort(6), (2, 6), FAST)
    assert (choice.supported or (0, 0))[1] == 6
    assert any("range=2:12" in remark for remark in choice.remarks)


@pytest.mark.slow
def test_features_without_any_groups_support_no_number():
    rng = np.random.default_rng(0)
    noise = [Bag(f"s{i}", torch.from_numpy(rng.normal(size=(100, 24))).float()) for i in range(12)]
    choice = compare_numbers(noise, (3, 12), FAST)
    assert choice.supported is None
    assert choice.sentence.startswith("No number from 3 to 12")
    assert any("no sharp groups" in remark for remark in choice.remarks)


def test_slides_of_one_patient_stay_in_one_half():
    """Every patient has a tissue of its own on two slides: halves of slides find all of them again, halves of patients none."""
    rng = np.random.default_rng(0)
    centres = rng.normal(0, 3, (6, 24))
    bags = [
        Bag(f"p{i}s{s}", torch.from_numpy(centres[i] + rng.normal(size=(80, 24))).float())
        for i in range(6)
        for s in "ab"
    ]
    patients = {bag.sample: bag.sample[:2] for bag in bags}
    choice = compare_numbers(bags, (2, 6), FAST, patients=patients)
    last = choice.candidates[-1]
    assert last.come_back < 2
    assert choice.supported is None or choice.supported[1] < 6
    assert any("6 patients are few" in remark for remark in choice.remarks)


def test_an_empty_range_or_too_few_patches_are_refused():
    for numbers in ((9, 4), (2.5, 4)):
        with pytest.raises(InputError, match=r"range|numbers"):
            choose_c(cohort(3), numbers)
    for largest in (16, 5000):
        with pytest.raises(InputError, match="range: "):
            compare_numbers(cohort(3, slides=2, n=20), (4, largest), FAST)
    with pytest.raises(InputError, match="NaN"):
        compare_numbers([Bag(name, torch.full((20, 4), torch.nan)) for name in "ab"], (4, 16), FAST)


@pytest.mark.slow
def test_choose_c_takes_a_table_and_lists_missing_slides():
    bags = cohort(4)
    names = [bag.sample for bag in bags]
    table = pd.DataFrame({"file": [*names, "nobody"], "case_id": [f"p{i % 6}" for i in range(len(names))] + ["x"]})
    choice = choose_c(bags, (2, 8), table=table, slide_column="file", sample=FAST.sample, restarts=FAST.restarts)
    patients = dict(zip(names, table["case_id"], strict=False))
    assert list(choice.failures) == ["nobody"]
    assert replace(choice, failures={}) == compare_numbers(bags, (2, 8), FAST, patients=patients)

"""Features of patches whose stains were normalised: they say so, and are not mixed with others."""

import json
from dataclasses import replace

import h5py
import numpy as np
import pytest
import torch

from encoders.making import quarters, tiny
from panther.encoders.pipeline import ExtractSettings, Pipeline
from panther.encoders.step import EncoderChoice, FeatureStep, write_features
from panther.errors import InputError
from panther.slides import SlideRef, open_slide, patch_spec
from panther.slides.stain import StainFit
from panther.storage.readers import open_bag
from panther.storage.trident import Coords
from panther.types import Prototypes
from slides.phantoms import glass, write_pyramid

STAINS = np.array([[0.65, 0.70, 0.29], [0.27, 0.90, 0.35]])


def stained(size=256):
    """An image with haematoxylin and eosin in changing amounts."""
    rng = np.random.default_rng(0)
    kind = rng.random((size, size, 1)) < 0.5
    amounts = np.concatenate([kind * rng.uniform(0.4, 1.5, kind.shape), ~kind * rng.uniform(0.4, 1, kind.shape)], -1)
    return np.rint(240 * np.exp(-amounts @ STAINS)).astype(np.uint8)


def encoded(tmp_path, image, stain):
    path = tmp_path / "slide.tif"
    write_pyramid(path, image, 0.5, levels=1)
    with open_slide(path, 0.5) as slide, Pipeline(tiny(size=128), ExtractSettings(workers=1)) as pipeline:
        places = np.array([(x, y) for y in (0, 128) for x in (0, 128)])
        coords = Coords("slide", places, patch_spec(slide, 128, 0.5), 0.5, slide.dimensions)
        write_features(SlideRef(path, "slide", 0.5), coords, pipeline, tmp_path / f"{stain}.h5", stain=stain)
        return tmp_path / f"{stain}.h5"


def test_features_are_of_normalised_patches_and_say_how(tmp_path):
    image = stained()
    plain, normal = (open_bag(encoded(tmp_path, image, stain)) for stain in (None, "macenko"))
    with h5py.File(normal.path) as file:
        about = json.loads(file["features"].attrs["stain"])
    fitted = StainFit(tuple(map(tuple, about["vectors"])), tuple(about["strength"]))
    tiles = np.stack([image[y : y + 128, x : x + 128] for y in (0, 128) for x in (0, 128)])
    np.testing.assert_allclose(normal.features[:].numpy(), quarters(np.stack(list(map(fitted, tiles)))), atol=1)
    assert np.abs(normal.features[:].numpy() - plain.features[:].numpy()).max() > 5
    assert normal.encoder == f"{plain.encoder}+macenko"
    with pytest.raises(InputError, match="different encoders"):
        Prototypes(torch.eye(12), encoder=plain.encoder).check(normal)


def test_a_slide_of_glass_is_encoded_as_it_is_and_says_so(tmp_path):
    image = glass(256, 256)
    plain, normal = (encoded(tmp_path, image, stain) for stain in (None, "macenko"))
    assert torch.equal(open_bag(plain).features[:], open_bag(normal).features[:])
    with h5py.File(normal) as file:
        assert "almost nothing in its patches is stained" in file["features"].attrs["stain_note"]
        assert "stain" not in file["features"].attrs


def test_a_job_keeps_them_in_a_folder_of_their_own():
    choice = EncoderChoice("lite0")
    assert replace(choice, stain="macenko").folder == "features_lite0-macenko" != choice.folder
    with pytest.raises(InputError, match="no stain normalisation 'reinhard'"):
        FeatureStep("x", replace(choice, stain="reinhard"))

"""`--device` on maps, atlases, attribution and concordance: the device of the work reaches what assigns patches, and changes no byte on a CPU."""

import numpy as np
import pandas as pd
import pytest
from known_regions import contents

import panther
from panther.explain.attention import attention
from panther.explain.scene import assign
from panther.mil import build_model
from panther.models.blocks import Block
from panther.models.model import Model
from panther.models.settings import Named
from panther.models.tasks import Classification
from panther.storage.readers import open_bag
from panther.types import FeatureSpace

ELSEWHERE = "cpu:0"  # for torch the same place under another name: the one device that every machine has beside "cpu"


@pytest.fixture
def devices(monkeypatch):
    """Devices on which patches were assigned."""
    seen = []

    def watched(bag, module, device="cpu"):
        seen.append(device)
        return assign(bag, module, device)

    for user in ("maps", "concordance"):
        monkeypatch.setattr(f"panther.explain.{user}.assign", watched)
    return seen


def draw(slide, output, device):
    panther.make_map(slide / "s.h5", slide / "p.safetensors", output=output, formats=["csv", "geojson"], device=device)


def compare(slide, output, device):
    x, y = open_bag(slide / "s.h5").coords.T
    labels = pd.DataFrame({"slide_id": "s", "x": x, "y": y, "label": np.where(x < 700, "left", "right")})
    options = {"patch_labels": labels, "positive": ["left"], "maps": False}
    panther.concordance(slide / "s.h5", slide / "p.safetensors", output=output, device=device, **options)


@pytest.mark.parametrize("make", [draw, compare])
def test_the_device_of_the_work_assigns_the_patches(slide, tmp_path, devices, make):
    make(slide, tmp_path / "here", "cpu")
    assert set(devices) == {"cpu"}
    devices.clear()
    make(slide, tmp_path / "elsewhere", ELSEWHERE)
    assert set(devices) == {ELSEWHERE}
    assert contents(tmp_path / "here") == contents(tmp_path / "elsewhere") != {}


def test_a_network_on_another_device_gives_the_same_attention_and_stays_where_it_is(slide):
    task = Classification(("a", "b"))
    module = build_model("abmil", 3, 2, None, {"hidden": 8, "attention": 4}, seed=4).eval()
    method = Named(name="abmil")
    model = Model(method, Named(name="own"), task, module, (Block(method, FeatureSpace(3, "mean")),), None, {})
    bag = open_bag(slide / "s.h5")
    here, elsewhere = attention(bag, model), attention(bag, model, ELSEWHERE)
    np.testing.assert_array_equal(here.weights, elsewhere.weights)
    assert model.network is module

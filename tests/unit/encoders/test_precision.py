"""Encoders in half precision: close to float32, never infinite, compiled or not."""

import copy
import functools
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from encoders.making import make_tiles, tiny
from panther.encoders import Encoder, load_encoder
from panther.encoders.float8 import agreement, with_float8_products
from panther.encoders.loading import without_batch_norms
from panther.encoders.pipeline import ExtractSettings, Pipeline
from panther.encoders.sources import TileFolder
from panther.encoders.step import encode_tiles
from panther.errors import InputError, Note
from panther.storage.trident import feature_attributes

PIXELS = np.random.default_rng(0).integers(0, 256, (5, 224, 224, 3), dtype=np.uint8)


@pytest.mark.parametrize(("precision", "largest"), [("bfloat16", 0.1), ("float16", 0.02)])
def test_half_precision_is_close_to_float32(precision, largest):
    exact, half = (load_encoder("lite0", precision=one) for one in ("float32", precision))
    error = (half(PIXELS) - exact(PIXELS)).norm(dim=1) / exact(PIXELS).norm(dim=1)
    assert half.public()["precision"] == precision
    assert 0 < error.max() < largest


def overflowing(falls_back):
    """An encoder whose features exceed float16 (65,504), not bfloat16."""
    encoder = tiny(scale=300.0)
    half = {"model": encoder.model.half(), "precision": "float16", "falls_back": falls_back}
    return replace(encoder, about=replace(encoder.about, std=(1 / 255**2,) * 3), **half)


def test_a_network_that_overflows_in_float16_computes_in_bfloat16_from_then_on(tmp_path):
    make_tiles(tmp_path, 20)
    source = TileFolder(tmp_path)
    with Pipeline(overflowing(falls_back=True), ExtractSettings(workers=1, dtype="float32")) as pipeline:
        with pytest.warns(Note, match="bfloat16"):
            rows = pipeline.run(source, source.names()).rows
        assert pipeline.encoder.public()["precision"] == "bfloat16"
        assert np.isfinite(rows).all()
        np.testing.assert_array_equal(pipeline.run(source, source.names()).rows, rows)  # without another note


def test_a_chosen_float16_that_overflows_is_an_error(tmp_path):
    make_tiles(tmp_path, 3)
    source = TileFolder(tmp_path)
    with (
        Pipeline(overflowing(falls_back=False), ExtractSettings(workers=1)) as pipeline,
        pytest.raises(InputError, match="precision"),
    ):
        pipeline.run(source, source.names())


class CastsInside(nn.Module):
    """A network of a user that leaves half precision."""

    dim, size = 2, 8

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, images):
        return self.linear(images.float().mean((2, 3)))


def test_a_network_that_cannot_compute_in_half_precision_is_refused_by_name(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "casting", type("module", (), {"make": CastsInside}))
    assert load_encoder("casting:make").precision == "float32"
    with pytest.raises(InputError, match="casting:make"):
        load_encoder("casting:make", precision="float16")


@pytest.mark.slow
def test_a_compiled_network_gives_the_same_features_also_for_a_last_short_batch():
    encoder = load_encoder("lite0")
    compiled = encoder.compile(2)
    assert compiled.public()["precision"] == "float32 compiled"
    torch.testing.assert_close(compiled(PIXELS), encoder(PIXELS), rtol=1e-4, atol=1e-4)


def test_a_short_last_batch_is_not_compiled_again(monkeypatch):
    compilations = []

    def backend(graph, inputs, **_):
        compilations.append([tuple(x.shape) for x in inputs])
        return graph.forward

    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=backend))
    pixels = np.random.default_rng(0).integers(0, 256, (8, 32, 32, 3), dtype=np.uint8)
    compiled = tiny().compile(8)
    for count in (8, 3, 1):
        torch.testing.assert_close(compiled(pixels[:count]), tiny()(pixels[:count]))
    assert len(compilations) == 1


def test_small_runs_are_not_compiled():
    large = nn.Linear(300_000, 1_000, device="meta")  # as many parameters as a ViT-L
    gpu = replace(tiny(), model=large, device=torch.device("cuda"), precision="float16")
    assert not gpu.pays_to_compile(15_000)
    assert gpu.pays_to_compile(300_000)
    assert not replace(gpu, precision="float32").pays_to_compile(300_000)
    assert replace(gpu, precision="float8").pays_to_compile(100)
    assert not load_encoder("lite0").pays_to_compile(300_000)  # 1.05x on a CPU


class Wide(nn.Module):
    """Two wide layers and a narrow one."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(12, 512), nn.Linear(512, 1024), nn.GELU(), nn.Linear(1024, 512))

    def forward(self, images):
        return self.layers(nn.functional.adaptive_avg_pool2d(images, 2).flatten(1))


def in_float8():
    exact = Wide().eval().requires_grad_(False)
    facts = replace(tiny().about, dim=512, std=(1.0,) * 3)
    half = Encoder(facts, copy.deepcopy(exact).half(), "weights", torch.device("cpu"), "float16")
    model = with_float8_products(copy.deepcopy(exact), "wide")
    return replace(half, model=model, precision="float8", reference=half), replace(
        half, model=exact, precision="float32"
    )


def test_float8_products_are_close_to_float32_and_their_agreement_is_in_the_file(tmp_path):
    make_tiles(tmp_path / "tiles", 40)
    encoder, exact = in_float8()
    pixels = np.random.default_rng(0).integers(0, 256, (30, 32, 32, 3), dtype=np.uint8)
    error = (encoder(pixels) - exact(pixels)).norm(dim=1) / exact(pixels).norm(dim=1)
    assert 1e-3 < error.max() < 0.1
    target = tmp_path / "bag.h5"
    with Pipeline(encoder, ExtractSettings(workers=1)) as pipeline, pytest.warns(Note, match="float8"):
        encode_tiles(tmp_path / "tiles", pipeline, target)
    written = feature_attributes(target)
    assert written["precision"] == "float8"
    assert 0.99 < written["float8_smallest_cosine"] < 1
    assert 0.5 < written["float8_same_prototype"] <= 1


def test_float8_is_refused_without_a_gpu_and_for_a_network_without_wide_layers():
    with pytest.raises(InputError, match="precision"):
        load_encoder("lite0", precision="float8")
    with pytest.raises(InputError, match="tiny"):
        with_float8_products(tiny().model, "tiny")


class Norms(nn.Module):
    """Two convolutions with norms, which are used in another order than they are declared if ``crossed``."""

    def __init__(self, crossed):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm1 = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)
        self.second, self.norm2 = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)
        self.crossed = crossed
        for norm in (self.norm1, self.norm2):
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2)

    def forward(self, images):
        norms = (self.norm2, self.norm1) if self.crossed else (self.norm1, self.norm2)
        return norms[1](self.second(norms[0](self.first(images)))).mean((2, 3))


@pytest.mark.parametrize("crossed", [False, True])
def test_batch_norms_are_folded_where_the_function_stays_the_same(crossed):
    model = Norms(crossed).eval().requires_grad_(False)
    folded = without_batch_norms(model, 8)
    images = torch.rand(2, 3, 8, 8)
    torch.testing.assert_close(folded(images), model(images))
    assert any(isinstance(part, nn.BatchNorm2d) for part in folded.modules()) == crossed


def test_a_network_that_cannot_be_compiled_stays_as_it_is(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda model, **_: lambda x: 1 / 0)  # a machine without a compiler
    encoder = load_encoder("lite0")
    assert encoder.compile(2) is encoder


def test_float8_is_not_compared_where_float16_overflows(tmp_path):
    make_tiles(tmp_path, 5)
    encoder, _ = in_float8()
    overflows = replace(encoder.reference, model=lambda images: torch.full((len(images), 512), torch.inf))
    with Pipeline(replace(encoder, reference=overflows), ExtractSettings(workers=1)) as pipeline:
        rows = pipeline.run(TileFolder(tmp_path), TileFolder(tmp_path).names()).rows
    assert np.isfinite(rows).all()
    assert pipeline.agreement == {}


def test_agreement_counts_patches_that_change_their_prototype():
    generator = torch.Generator().manual_seed(0)
    centres = torch.eye(16) * 10
    reference = centres.repeat(8, 1) + torch.rand(128, 16, generator=generator) * 0.1
    moved = reference.clone()
    moved[:32] = reference[1:33]  # each lies at the next centre
    assert agreement(moved, reference)["same_prototype"] == pytest.approx(0.75)
    assert agreement(reference, reference) == pytest.approx({"smallest_cosine": 1.0, "same_prototype": 1.0})

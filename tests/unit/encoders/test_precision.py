"""Encoders in half precision: close to float32, never infinite, compiled or not."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from encoders.making import make_tiles, tiny
from panther.encoders import load_encoder
from panther.encoders.pipeline import ExtractSettings, Pipeline
from panther.encoders.sources import TileFolder
from panther.errors import InputError, Note

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


def test_a_network_that_cannot_be_compiled_stays_as_it_is(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda model, **_: lambda x: 1 / 0)  # a machine without a compiler
    encoder = load_encoder("lite0")
    assert encoder.compile(2) is encoder


def test_small_runs_are_not_compiled():
    large = nn.Linear(300_000, 1_000, device="meta")  # as many parameters as a ViT-L
    gpu = replace(tiny(), model=large, device=torch.device("cuda"), precision="float16")
    assert not gpu.pays_to_compile(15_000)
    assert gpu.pays_to_compile(300_000)
    assert not replace(gpu, precision="float32").pays_to_compile(300_000)

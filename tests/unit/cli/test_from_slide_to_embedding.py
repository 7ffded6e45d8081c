"""From an image to an embedding with the commands of the README, offline, with the embedded encoder."""

import numpy as np
import pytest
from PIL import Image
from running import strict_json

FEATURES = "job/20x_256px_0px_overlap/features_lite0"


@pytest.fixture
def slide(tmp_path, monkeypatch):
    """White glass with two tissues side by side: pink with fine grain, violet with coarse."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    image = np.full((1100, 1400, 3), 243, np.uint8)
    pink = rng.normal((215, 120, 170), 18, (768, 512, 3))
    violet = np.kron(rng.normal((110, 70, 140), 30, (96, 64, 3)), np.ones((8, 8, 1)))
    image[150:918, 180:692] = pink.clip(0, 255)
    image[150:918, 692:1204] = violet.clip(0, 255)
    Image.fromarray(image).save("slide.png")
    return tmp_path


def test_a_dry_run_with_an_encoder_estimates_its_bytes_and_time(slide, panther):
    command = ("slides", "slide.png", "-o", "job", "--slide-mpp", 0.5, "--encoder", "lite0", "-j", 1, "--dry-run")
    told = strict_json(panther(*command, "--json")[0])
    assert told["feature_bytes_1280"] == told["patches"] * (2 * 1280 + 16)
    assert "feature_bytes_1024" not in told
    assert told["encode_seconds"] > 0
    assert "to encode them" in panther(*command)[0]
    assert not (slide / "job").exists()

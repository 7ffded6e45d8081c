"""An encoder that the workers of a cluster cannot load refuses the request before the work, as it does without a cluster."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cli.running import Runner


@pytest.fixture
def panther(tmp_path: Path, monkeypatch, capsys) -> Runner:
    monkeypatch.chdir(tmp_path)
    Path("slides").mkdir()
    rng = np.random.default_rng(0)
    for name in "ab":
        image = np.clip(rng.normal((200, 120, 180), 20, (600, 600, 3)), 0, 255).astype(np.uint8)
        Image.fromarray(image).save(f"slides/{name}.tif", resolution=20000, resolution_unit=3)
    return Runner(monkeypatch, capsys)


def test_slides_are_not_begun_with_an_encoder_that_no_worker_can_have(panther, cluster):
    _, err = panther(
        "slides", "slides", "-o", "job", "--encoder", "ctranspath", "-j", cluster.scheduler_address, code=2
    )
    assert err.count("`--weights FILE`") == 1
    assert not Path("job").exists()


@pytest.mark.slow
def test_slides_that_are_encoded_need_no_encoder(panther, cluster):
    words = ("slides", "slides", "-o", "job", "--encoder", "lite0", "--patch-size", 224)
    words = (*words, "-j", cluster.scheduler_address)
    assert "2 of 2 slides done" in panther(*words)[0]
    assert "(2 were done already)" in panther(*words)[0]

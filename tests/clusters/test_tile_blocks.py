"""`encode-tiles` on a cluster: the file of one process."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cli.running import Runner
from panther.encoders import tile_blocks


@pytest.fixture
def tiles(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    Path("tiles").mkdir()
    for number in range(21):
        Image.fromarray(rng.integers(0, 255, (64, 64, 3), dtype=np.uint8)).save(f"tiles/{number:02d}.png")
    Path("tiles/13.png").write_bytes(b"no picture")
    return tmp_path


@pytest.mark.slow
def test_a_cluster_writes_the_file_of_one_process(tiles, cluster, monkeypatch, capsys):
    monkeypatch.setattr(tile_blocks, "BLOCK", 5)
    panther = Runner(monkeypatch, capsys)
    words = ("encode-tiles", "tiles", "--device", "cpu", "-j", 1, "-o")
    panther(*words, "one/job/tiles/t.h5", code=1)
    panther(*words, "dask/job/tiles/t.h5", "--cluster", cluster.scheduler_address, code=1)
    assert Path("one/job/tiles/t.h5").read_bytes() == Path("dask/job/tiles/t.h5").read_bytes()
    assert not list(Path("dask/job/tiles").glob(".*"))

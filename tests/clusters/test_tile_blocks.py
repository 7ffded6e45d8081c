"""`encode-tiles` on a cluster and in shards: the file of one process."""

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


def test_shards_write_the_file_of_one_process(tiles, monkeypatch, capsys):
    monkeypatch.setattr(tile_blocks, "BLOCK", 5)  # 6, so that blocks begin where pairs do
    panther = Runner(monkeypatch, capsys)
    words = ("encode-tiles", "tiles", "--device", "cpu", "-j", 1, "-o")
    panther(*words, "one/job/tiles/t.h5", code=1)
    for shard in ("1/2", "0/2"):
        assert "13.png" in panther(*words, "two/job/tiles/t.h5", "--shard", shard, code=1)[1]
    assert Path("one/job/tiles/t.h5").read_bytes() == Path("two/job/tiles/t.h5").read_bytes()


@pytest.mark.slow
def test_a_cluster_writes_the_file_of_one_process(tiles, cluster, monkeypatch, capsys):
    monkeypatch.setattr(tile_blocks, "BLOCK", 5)
    panther = Runner(monkeypatch, capsys)
    words = ("encode-tiles", "tiles", "--device", "cpu", "-j", 1, "-o")
    panther(*words, "one/job/tiles/t.h5", code=1)
    panther(*words, "dask/job/tiles/t.h5", "--cluster", cluster.scheduler_address, code=1)
    assert Path("one/job/tiles/t.h5").read_bytes() == Path("dask/job/tiles/t.h5").read_bytes()
    assert not list(Path("dask/job/tiles").glob(".*"))

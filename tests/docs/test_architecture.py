"""The walks of the architecture page lead through files that exist, and are as long as they say."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "concepts" / "architecture.md").read_text(encoding="utf-8")
WALKS = dict(re.findall(r"^\*\*([A-Z][^*]+)\*\* \(\d+\):(.*?)\n\n", PAGE, re.DOTALL | re.MULTILINE))


def test_all_four_flows_have_a_walk():
    assert set(WALKS) == {"Features to embedding", "Slide to features", "Study to report", "Map and atlas"}


@pytest.mark.parametrize("walk", WALKS)
def test_every_file_of_a_walk_exists_and_is_visited_once(walk):
    stops = re.findall(r"`([a-z_]+(?:/[a-z_]+)+)`", WALKS[walk])
    missing = [stop for stop in stops if not _there(stop)]
    assert not missing
    assert len(set(stops)) == len(stops)


def _there(stop: str) -> bool:
    path = ROOT / "src" / "panther" / stop
    return path.is_dir() or path.with_suffix(".py").exists()

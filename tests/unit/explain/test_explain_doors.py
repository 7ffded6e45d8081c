"""The Python functions with values in memory; files are written only with `output`."""

import matplotlib.figure
import numpy as np
import pytest

import panther


def parts(slide):
    return panther.open_bag(slide / "s.h5"), panther.load_prototypes(slide / "p.safetensors")


def test_a_map_of_values_equals_the_map_of_files(slide):
    bag, prototypes = parts(slide)
    before = sorted(slide.iterdir())
    here = panther.make_map(bag, prototypes, slides=slide / "s.tif", names={1: "nest"})
    there = panther.make_map(slide / "s.h5", slide / "p.safetensors", slides={"s": slide / "s.tif"})
    assert list(here) == list(there) == ["s"]
    np.testing.assert_array_equal(here["s"].assignment, there["s"].assignment)
    assert here["s"].title(1) == "C1 nest"
    figures = here["s"].figures([0, 1])
    assert list(figures) == ["map", "side_by_side", "neighbours", "heatmaps"]
    assert all(isinstance(figure, matplotlib.figure.Figure) for figure in figures.values())
    assert sorted(slide.iterdir()) == before  # nothing was written


def test_maps_are_written_where_they_are_asked_for_and_workers_write_the_same_bytes(slide, tmp_path):
    bag, prototypes = parts(slide)
    found = panther.make_map([bag], prototypes, output=tmp_path / "a", formats=["png"])
    panther.make_map(slide / "s.h5", prototypes, output=tmp_path / "b", formats=["png"], workers=2)
    names = [f"s.{name}.png" for name in ("map", "side_by_side", "neighbours", "overlay")]
    assert [file.name for file in found.slides[0].files] == names
    for file in found.slides[0].files:
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes()
    with pytest.raises(KeyError, match="written to files"):
        found["s"]

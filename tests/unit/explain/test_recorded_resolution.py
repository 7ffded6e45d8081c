"""A slide whose tags are wrong: the resolution that its patches were cut with is in the feature file and is not asked for again."""

import pytest

from explain.known_regions import COLOURS, HEIGHT, MPP, WIDTH, truth
from panther import load_prototypes, open_bag
from panther.errors import InputError
from panther.explain import map_slide
from panther.slides import open_slide
from slides.phantoms import write_pyramid

FEATURES = "job/20x_256px_0px_overlap/features_lite0"


@pytest.fixture
def folder(tmp_path, run):
    """A job on a slide that says 50 um/px, with a table that says 0.5."""
    (tmp_path / "images").mkdir()
    write_pyramid(tmp_path / "images" / "s.tif", COLOURS[truth(WIDTH, HEIGHT)], 50.0, levels=2)
    (tmp_path / "mpp.csv").write_text(f"wsi,mpp\ns.tif,{MPP}\n")
    run("slides", "images", "-o", "job", "--encoder", "lite0", "--slide-mpp-table", "mpp.csv", "-j", 1)
    run("prototypes", FEATURES, "-C", 2, "-o", "p.safetensors")
    return tmp_path


def test_maps_and_the_atlas_use_the_resolution_that_the_features_record_unless_the_user_says_another(folder, run):
    with pytest.raises(InputError, match="not plausible"):
        open_slide(folder / "images" / "s.tif")
    run("map", FEATURES, "-p", "p.safetensors", "-o", "maps", "--slides", "images")
    run("atlas", FEATURES, "-p", "p.safetensors", "-o", "atlas", "--slides", "images")
    bag = open_bag(folder / FEATURES / "s.h5")
    assert bag.spec.mpp_level0 == MPP
    found = map_slide(bag, load_prototypes("p.safetensors"), image=folder / "images" / "s.tif")
    assert found.view.mpp == MPP
    # a converted file still records it
    run("convert", FEATURES, "-o", "fast", "--dtype", "float16")
    assert open_bag("fast/s.h5").spec.mpp_level0 == MPP
    run("map", "fast", "-p", "p.safetensors", "-o", "maps", "--slides", "images")
    # what the user says goes first
    _, err = run("map", FEATURES, "-p", "p.safetensors", "-o", "maps", "--slides", "images", "--slide-mpp", 9, code=2)
    assert "not plausible" in err or "9" in err

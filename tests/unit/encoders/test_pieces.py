"""Pieces of tissue as bags of their own, from the command line to maps; the slide is drawn, so that its pieces are known."""

import h5py
import numpy as np
import pandas as pd
import pytest
from PIL import Image

import panther
from commands import run
from panther.encoders.pieces import connected, numbered
from panther.errors import InputError
from panther.viewer.contents import Inputs, find_contents

# x, y, width, height in patches of 64 px; the last two touch at a corner
BLOCKS = ((1, 1, 4, 3), (8, 1, 2, 2), (11, 6, 1, 2), (2, 7, 3, 2), (5, 9, 2, 1))
SIZES = [12, 8, 4, 2]


def words(job, *more):
    common = ("--slide-mpp", 0.5, "--patch-size", 64, "--encoder", "lite0", "--device", "cpu", "-j", 1)
    return ("slides", job.parent / "a.tif", "-o", job, *common, "--min-tissue", 0.5, "--set", "min_area=100", *more)


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pieces")
    rng = np.random.default_rng(0)
    image = np.full((768, 896, 3), 245, np.uint8)
    for x, y, width, height in BLOCKS:
        shape = (64 * height, 64 * width)
        image[64 * y :, 64 * x :][: shape[0], : shape[1]] = rng.normal((170, 80, 150), 20, (*shape, 3)).clip(0, 255)
    Image.fromarray(image).save(folder / "a.tif")
    run(*words(folder / "job", "--pieces"))
    return folder / "job"


def pieces_of(job):
    return next(job.glob("*/features_lite0_pieces"))


def whole_of(job):
    return panther.open_bag(next(job.glob("*/features_lite0/a.h5")))


def test_every_patch_is_in_one_piece_and_the_largest_is_first(job):
    bags = {ref.sample: ref.open() for ref in panther.list_bags(pieces_of(job)).refs}
    assert [len(bags[f"a_piece{k}"]) for k in (1, 2, 3, 4)] == SIZES
    whole = whole_of(job)
    rows = {tuple(corner): row for corner, row in zip(whole.places().tolist(), whole.features[:].tolist(), strict=True)}
    parts = [
        pair for bag in bags.values() for pair in zip(bag.places().tolist(), bag.features[:].tolist(), strict=True)
    ]
    assert {tuple(corner): row for corner, row in parts} == rows
    assert len(parts) == len(whole)
    with h5py.File(pieces_of(job) / "a_piece2.h5") as file:
        assert (file["features"].attrs["slide"], file["features"].attrs["piece"]) == ("a", 2)


def test_the_table_has_a_row_per_piece_that_clinical_tables_join(job):
    table = pd.read_csv(job / "pieces.csv")
    assert table["slide_id"].tolist() == [f"a_piece{k}" for k in (1, 2, 3, 4)]
    assert (table["patches"].tolist(), set(table["slide"])) == (SIZES, {"a"})
    assert table.loc[3, ["x", "y"]].tolist() == [64 * 11.5, 64 * 7]
    assert table.loc[0, "tissue_mm2"] == pytest.approx(12 * 0.032**2, rel=1e-3)


def test_a_second_run_does_nothing_and_a_lost_piece_is_written_again(job):
    assert "1 were done already" in run(*words(job, "--pieces")).stdout
    lost = pieces_of(job) / "a_piece3.h5"
    before = lost.read_bytes()
    lost.unlink()
    assert "0 were done already" in run(*words(job, "--pieces")).stdout
    assert lost.read_bytes() == before


def test_a_sample_is_divided_with_its_population_and_old_pieces_go(job, tmp_path):
    run(*words(job, "--pieces", "--budget", "50%"))
    listing = panther.list_bags(pieces_of(job))
    bags = [ref.open() for ref in listing.refs]
    assert sum(map(len, bags)) == 13
    assert all(bag.population is None or len(bag) <= bag.population.total for bag in bags)
    totals = [len(bag) if bag.population is None else bag.population.total for bag in bags]
    assert sorted(totals, reverse=True)[: len(bags)] == SIZES[: len(bags)]
    run(*words(job, "--pieces"))
    assert len(panther.list_bags(pieces_of(job))) == 4


def test_maps_and_the_viewer_draw_pieces_on_their_slide(job, tmp_path):
    prototypes = panther.fit_prototypes(pieces_of(job), n_prototypes=2)
    maps = panther.make_map(pieces_of(job), prototypes, slides=job.parent, slide_mpp=0.5)
    assert set(maps) == {f"a_piece{k}" for k in (1, 2, 3, 4)}
    one = panther.make_map(pieces_of(job), prototypes, slides=job.parent / "a.tif", slide_mpp=0.5)
    assert set(one) == set(maps)
    assert set(find_contents(job).slides) == {"a"}  # the whole slide is shown once
    shown = find_contents(pieces_of(job), Inputs(slides=job.parent)).slides
    assert {shown[name].image.name for name in maps} == {"a.tif"}


def test_whole_slides_and_their_pieces_are_not_one_cohort(job):
    with pytest.raises(InputError, match="a_piece1"):
        panther.list_bags(pieces_of(job).parent)


def test_pieces_in_memory(job):
    bags = panther.extract(
        job.parent / "a.tif",
        patch_size=64,
        slide_mpp=0.5,
        tissue_settings={"min_area": 100},
        min_tissue=0.5,
        pieces=True,
    )
    assert [len(bags[name]) for name in sorted(bags)] == SIZES


@pytest.mark.parametrize("step", [64, 63.7])
def test_pieces_touch_also_at_corners_and_equal_ones_are_ordered_by_place(step):
    cells = np.array([[0, 0], [1, 1], [3, 0], [4, 0], [0, 3], [2, 2], [9, 9]])
    coords = np.round(cells * step).astype(np.int64)
    pieces = connected(coords, step)
    assert numbered(pieces, coords).tolist() == [1, 1, 2, 2, 3, 1, 4]
    assert len(connected(coords[:0], step)) == 0

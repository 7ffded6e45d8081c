"""Which patches stand for a prototype, and their pixels."""

from concurrent.futures import ThreadPoolExecutor

import h5py
import numpy as np
import pytest
import torch
from known_regions import COLOURS, SIDE, tissue_at
from PIL import Image

from panther.engine import Work
from panther.errors import InputError
from panther.explain.atlas import (
    AtlasSettings,
    Exemplar,
    Place,
    atlas_of,
    most_varied,
    read_patches,
)
from panther.explain.scene import MapSettings, SlideJob
from panther.storage.bags import list_bags
from panther.storage.prototypes import load_prototypes
from panther.types import Bag, Prototypes
from panther.verbs.atlas import make_atlas


def patches(seed, slides=12):
    """Candidates of one prototype by slide; patients have one to three slides."""
    rng = np.random.default_rng(seed)
    found = {}
    for number in range(slides):
        slide, patient = f"s{number}", f"p{rng.integers(slides // 2)}"
        ranks = np.sort(rng.integers(30, size=rng.integers(1, 6)))  # with ties
        found[slide] = [Exemplar(0, "nearest", slide, patient, i, float(r), float(r)) for i, r in enumerate(ranks)]
    return found


@pytest.mark.parametrize("seed", range(20))
def test_choosing_while_slides_stream_by_is_choosing_from_all(seed):
    found = patches(seed)
    everything = [one for members in found.values() for one in members]
    for number in (1, 3, 8, 100):
        kept = []
        for slide in np.random.default_rng(seed + 1).permutation(list(found)):
            kept = most_varied([*kept, *found[slide]], number)
        assert kept == most_varied(everything, number)
        assert len(kept) == min(number, len(everything))


@pytest.mark.parametrize("seed", range(5))
def test_every_patient_is_shown_before_one_is_shown_twice_and_every_slide_too(seed):
    found = [one for members in patches(seed).values() for one in members]
    patients, slides = {one.patient for one in found}, {one.slide for one in found}
    first = most_varied(found, len(patients))
    assert {one.patient for one in first} == patients
    assert all(one.rank == min(other.rank for other in found if other.patient == one.patient) for one in first)
    assert [one.rank for one in first] == sorted(one.rank for one in first)
    assert {one.slide for one in most_varied(found, len(slides))} == slides


def cohort(d=6, c=3):
    generator = torch.Generator().manual_seed(0)
    centroids = 4 * torch.randn(c, d, generator=generator) + 100  # far from the origin: digits must survive
    jobs = []
    for number in range(5):
        labels = torch.randint(c, (50,), generator=generator)
        features = centroids[labels] + torch.randn(50, d, generator=generator)
        coords = torch.tensor([(256 * (i % 10), 256 * (i // 10)) for i in range(50)])
        jobs.append(SlideJob(Bag(f"s{number}", features, lambda coords=coords: coords), patient=f"p{number // 2}"))
    return jobs, Prototypes(centroids)


@pytest.mark.parametrize("method", ["panther", "ot", "h2t", "protocounts"])
def test_nearest_patches_are_those_of_a_search_through_everything(method):
    jobs, prototypes = cohort()
    found = atlas_of(jobs, prototypes, AtlasSettings(MapSettings(method), exemplars=3))
    assert found.weights.sum(1) == pytest.approx(np.ones(5), abs=1e-5)
    centroids = prototypes.centroids.double()
    for c in range(3):
        best = {}
        for job in jobs:
            distances = torch.cdist(job.ref.open().features[:].double(), centroids)
            own = distances[distances.argmin(1) == c, c]  # clusters are far apart: every method agrees
            best[job.patient] = min(best.get(job.patient, np.inf), float(own.min()))
        shown = [found.exemplars[i] for i in found.chosen(c, "nearest")]
        assert {one.patient: one.distance for one in shown} == pytest.approx(best, rel=1e-4)
        assert len(found.chosen(c, "random")) == 3


def test_neither_the_order_of_slides_nor_workers_change_the_atlas_and_ot_counts_members():
    jobs, prototypes = cohort()
    plain = atlas_of(jobs, prototypes)
    with ThreadPoolExecutor(3) as pool:
        other = atlas_of(jobs[::-1], prototypes, work=Work(pool))
    assert plain.exemplars == other.exemplars
    np.testing.assert_allclose(plain.touching.touches, other.touching.touches)
    for key in ("value", "low"):
        assert [getattr(s, key) for s in plain.shares] == pytest.approx([getattr(s, key) for s in other.shares])
    even = atlas_of(jobs, prototypes, AtlasSettings(MapSettings("ot")))  # its weights are even
    np.testing.assert_allclose(even.weights, even.members / 50)
    assert np.ptp(even.weights) > 0.05


def test_pictures_are_the_patches_of_the_slide(slide):
    (ref,) = list_bags(slide / "s.h5").refs
    prototypes = load_prototypes(slide / "p.safetensors")
    found = atlas_of([SlideJob(ref, slide / "s.tif", patient="p")], prototypes, AtlasSettings(exemplars=4))
    assert set(found.pictures) == set(range(len(found.exemplars)))
    for index, pixels in found.pictures.items():
        one = found.exemplars[index]
        assert pixels.shape == (SIDE, SIDE, 3)  # never enlarged
        assert one.place is not None
        x, y = np.meshgrid(one.place.x + np.arange(SIDE) + 0.5, one.place.y + np.arange(SIDE) + 0.5)
        # JPEG in the slide and edges between tissues: the mean colour is known
        truth = COLOURS[tissue_at(x, y)].mean((0, 1))
        assert pixels.mean((0, 1)) == pytest.approx(truth, abs=4)


def test_a_large_patch_is_read_small_and_micrometres_become_pixels(slide):
    job = SlideJob(Bag("s", torch.ones(1, 3)), slide / "s.tif")

    def read(*places):
        shown = [Exemplar(0, "nearest", "s", "s", 0, 0.0, 0.0, place) for place in places]
        return read_patches(job, {"s": shown}, MapSettings())

    in_pixels, in_um = read(Place(100, 200, 400), Place(50, 100, 200, "um"))  # 0.5 um/px
    assert in_pixels.shape == (160, 160, 3)
    np.testing.assert_array_equal(in_pixels, in_um)
    with pytest.raises(InputError, match=r"s\.tif"):
        read(Place(5000, 0, 60))
    with pytest.raises(InputError, match=r"s\.tif"):
        read(Place(0, 0, None))


def test_exemplars_of_a_bag_of_tiles_are_its_tiles(tmp_path):
    rng = np.random.default_rng(0)
    colours = rng.integers(0, 255, (6, 3), dtype=np.uint8)
    (tmp_path / "tiles" / "s").mkdir(parents=True)
    names = [f"{number}.png" for number in range(6)]
    for name, colour in zip(names, colours, strict=True):
        Image.fromarray(np.full((200, 200, 3), colour)).save(tmp_path / "tiles" / "s" / name)
    with h5py.File(tmp_path / "s.h5", "w") as file:
        file["features"], file["tiles"] = colours.astype(np.float32), names
    prototypes = Prototypes(torch.from_numpy(colours[:2].astype(np.float32)))
    atlas = make_atlas(tmp_path / "s.h5", prototypes, tmp_path / "tiles", method="protocounts")
    assert set(atlas.pictures) == set(range(len(atlas.exemplars)))
    for index, pixels in atlas.pictures.items():
        assert pixels.shape == (160, 160, 3)
        assert pixels[0, 0].tolist() == colours[atlas.exemplars[index].row].tolist()

"""Synthetic slides: the truth beside them is what was drawn, they are real slides to the product, and they repeat byte for byte."""

from dataclasses import replace

import numpy as np
import pytest
import tifffile
from scipy import ndimage

from panther.engine import Work, open_executor
from panther.errors import InputError
from panther.slides import list_slides, open_slide
from panther_demo.cohort import CohortSettings, make_patients, write_cohort
from panther_demo.layout import SCALE, make_layout
from panther_demo.slide import DrawnSlide, draw, write_slide
from panther_demo.stain import site_stain, transmitted
from panther_demo.tissues import tissues
from panther_demo.truth import read_mask

NAMES = tissues.names()
SHARES = (0.2, 0.2, 0.2, 0.1, 0.1, 0.1, 0.1)


def plan(shares=SHARES, side=1280, seed=1, **more) -> DrawnSlide:
    return DrawnSlide("S", shares, (side, side), site_stain(np.random.default_rng(3)), (seed,), **more)


@pytest.fixture(scope="module")
def drawn():
    return draw(plan())


def densities(picture, labels, stain, label):
    """Concentrations of haematoxylin and eosin under one label, away from its border, by least squares."""
    inside = ndimage.binary_erosion(labels == label, iterations=3)
    pixels = picture[np.kron(inside, np.ones((SCALE, SCALE), bool))].astype(float)
    density = -np.log10(np.clip(pixels, 1, None) / stain.white)
    vectors = np.stack([stain.haematoxylin * stain.strength[0], stain.eosin * stain.strength[1]])
    return np.linalg.lstsq(vectors.T, density.T, rcond=None)[0]  # (2, n)


def test_each_tissue_has_its_share_and_others_are_not_drawn(drawn):
    assert np.abs(drawn[1].shares(7) - SHARES).max() < 0.005
    layout = make_layout(np.random.default_rng(0), np.array([0.5, 0, 0.5, 0, 0, 0, 0]), (1024, 1024))
    assert set(np.unique(layout.labels)) == {0, 1, 3}


def test_tissues_look_as_the_mask_names_them(drawn):
    picture, layout = drawn
    h, e = {}, {}
    for label, name in enumerate(["glass", *NAMES]):
        h[name], e[name] = densities(picture, layout.labels, plan().stain, label)
    h_mean, e_mean = ({name: density.mean() for name, density in stain.items()} for stain in (h, e))
    assert abs(h_mean["glass"]) < 0.02
    assert abs(e_mean["glass"]) < 0.02
    assert max(h_mean, key=h_mean.get) == "lymphocytes"
    assert max(e_mean, key=e_mean.get) == "necrosis"
    assert e_mean["stroma"] > 0.2 > h_mean["stroma"]  # pink
    assert h_mean["mucin"] > 0.2 > e_mean["mucin"]  # blue, evenly
    assert h["mucin"].std() < h["solid tumour"].std()
    empty = {name: np.mean(h[name] + e[name] < 0.1) for name in NAMES}
    assert empty["adipose"] > 0.5
    assert empty["glandular tumour"] > 0.03 > empty["solid tumour"]  # lumina
    nuclei = {name: np.mean(h[name] > 0.6) for name in NAMES}
    assert nuclei["lymphocytes"] > nuclei["solid tumour"] > nuclei["stroma"] > nuclei["adipose"]
    assert nuclei["glandular tumour"] > 0.1
    assert nuclei["mucin"] < 0.05


def test_colours_follow_beer_and_lambert():
    stain = site_stain(np.random.default_rng(0))
    h, e = (values.astype(np.float32) for values in np.meshgrid(np.linspace(0, 0.8, 9), np.linspace(0, 0.6, 7)))
    found = transmitted(h, e, replace(stain, noise=0.0), np.random.default_rng(1))
    density = h[..., None] * stain.haematoxylin * stain.strength[0] + e[..., None] * stain.eosin * stain.strength[1]
    assert np.abs(found - stain.white * 10**-density).max() <= 1.001


def test_folds_are_darker_and_ink_is_not_in_the_truth():
    plain, layout = draw(plan(side=1024))
    folded, same = draw(plan(side=1024, fold=True))
    assert np.array_equal(layout.labels, same.labels)
    tissue = np.kron(layout.labels > 0, np.ones((SCALE, SCALE), bool))
    assert folded[tissue].mean() < plain[tissue].mean() - 1
    inked, same = draw(plan(side=1024, pen=True))
    assert np.array_equal(layout.labels, same.labels)
    changed = (np.abs(inked.astype(int) - plain).max(-1) > 40).mean()
    assert 0.002 < changed < 0.05


def test_a_slide_is_a_slide_to_the_product(tmp_path):
    shares = write_slide(plan(side=1024), tmp_path / "slides", tmp_path / "truth")
    with open_slide(tmp_path / "slides" / "S.tif") as slide:
        assert slide.mpp == pytest.approx(0.5)
        assert slide.vendor == "generic-tiff"  # OpenSlide's word
        assert slide.level_dimensions == ((1024, 1024), (512, 512), (256, 256))
        pixels = slide.read_region(256, 256, 0, 512, 512)
    drawn = draw(plan(side=1024))[0][256:768, 256:768]
    assert np.abs(pixels.astype(int) - drawn).mean() < 6  # JPEG
    with tifffile.TiffFile(tmp_path / "slides" / "S.tif") as file:
        assert "SYNTHETIC" in file.pages[0].description
    mask = read_mask(tmp_path / "truth" / "S.png")
    assert np.allclose(np.bincount(mask.ravel(), minlength=8)[1:] / (mask > 0).sum(), shares)
    assert [ref.name for ref in list_slides([tmp_path]).refs] == ["S"]  # the truth is not taken for a slide


def test_processes_do_not_change_a_byte_and_the_seed_does(tmp_path):
    settings = CohortSettings(patients=3, sites=2, side=512, seed=4)
    write_cohort(tmp_path / "one", settings)
    with open_executor(2) as executor:
        write_cohort(tmp_path / "two", settings, Work(executor))
    files = sorted(path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*") if path.is_file())
    assert len(files) == 4 + 4 + 2  # patient 0 has two slides; masks; two tables
    for file in files:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes(), file
    other = draw(make_patients(CohortSettings(3, 2, 512, seed=5))[0].slides[0])[0]
    assert not np.array_equal(other, draw(make_patients(settings)[0].slides[0])[0])


def test_a_slide_of_the_same_plan_is_kept_and_another_is_drawn(tmp_path):
    folders = tmp_path / "slides", tmp_path / "truth"
    shares = write_slide(plan(side=512), *folders)
    first = (tmp_path / "slides" / "S.tif").stat().st_mtime_ns
    assert np.array_equal(write_slide(plan(side=512), *folders), shares)
    assert (tmp_path / "slides" / "S.tif").stat().st_mtime_ns == first
    before = (tmp_path / "slides" / "S.tif").read_bytes()
    (tmp_path / "slides" / "S.tif").write_bytes(before[:100])  # damaged
    write_slide(plan(side=512), *folders)
    assert (tmp_path / "slides" / "S.tif").read_bytes() == before
    write_slide(plan(side=512, seed=2), *folders)
    assert (tmp_path / "slides" / "S.tif").read_bytes() != before


def test_a_patient_does_not_depend_on_how_many_there_are():
    few, many = ({p.name: p for p in make_patients(CohortSettings(n, 5))} for n in (10, 20))
    for name, patient in few.items():
        other = many[name]
        assert [slide.shares for slide in patient.slides] == [slide.shares for slide in other.slides]
        assert (patient.days, patient.censored, patient.subtype) == (other.days, other.censored, other.subtype)
    patients = make_patients(CohortSettings(patients=9, sites=3, side=1536))
    assert len(patients) == 9
    assert len({(p.site, p.subtype) for p in patients}) == 6  # both subtypes at every site


@pytest.mark.parametrize("bad", [{"patients": 1}, {"sites": 0}, {"side": 500}, {"seed": -1}])
def test_a_cohort_that_makes_no_sense_is_refused(bad):
    with pytest.raises(InputError):
        CohortSettings(**bad)

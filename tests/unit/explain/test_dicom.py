"""Maps as DICOM lie on the slide to the pixel, by highdicom's and wsidicom's reading of them."""

import numpy as np
import pytest
import torch

import panther
from panther.errors import InputError

hd = pytest.importorskip("highdicom", reason="highdicom is not installed")
pydicom = pytest.importorskip("pydicom", reason="pydicom is not installed")
NAMES = {1: {"name": "tumour, solid"}}
pytestmark = pytest.mark.filterwarnings("ignore")  # of highdicom, about codes


@pytest.fixture
def slide(shared_data):
    return shared_data / "slides" / "CMU-1-dicom"


def make_bag(offsets: tuple[int, ...] = (37,)) -> panther.Bag:
    """Patches of 256 px from corners that are no multiples of it; each offset starts another grid."""
    corners = [(o + 256 * i, 91 + o + 256 * j) for o in offsets for j in range(3) for i in range(4)]
    features = np.random.default_rng(0).normal(size=(len(corners), 8)).astype("f4")
    spec = panther.PatchSpec(0.5, 256, size_level0=256)
    return panther.Bag("CMU-1-dicom", features, torch.as_tensor(corners), spec, encoder="uni")


PROTOTYPES = panther.Prototypes(np.random.default_rng(1).normal(size=(4, 8)).astype("f4"), encoder="uni")


def finest(folder):
    headers = [pydicom.dcmread(path, stop_before_pixels=True) for path in folder.glob("*.dcm")]
    return max((h for h in headers if "VOLUME" in h.ImageType), key=lambda h: h.TotalPixelMatrixColumns)


def level0(image, source, points):
    """Points of an image's pixel matrix in level-0 pixels of the slide."""
    to_slide = hd.spatial.ImageToReferenceTransformer.for_image(image, for_total_pixel_matrix=True)
    to_image = hd.spatial.ReferenceToImageTransformer.for_image(source, for_total_pixel_matrix=True)
    return to_image(to_slide(np.asarray(points, float)))[:, :2]


@pytest.mark.parametrize("offsets", [(37,), (37, 37 + 4 * 256 + 80)])
def test_every_patch_is_where_and_what_it_was(slide, tmp_path, offsets):
    bag = make_bag(offsets)
    made = panther.make_map(bag, PROTOTYPES, slides={"CMU-1-dicom": slide})["CMU-1-dicom"]
    panther.make_map(bag, PROTOTYPES, slides={"CMU-1-dicom": slide}, output=tmp_path, formats=["dicom", "dicom-seg"],
                     prototype=2, names={1: "tumour, solid"})  # fmt: skip
    source = finest(slide)
    files = {name: hd.imread(tmp_path / f"CMU-1-dicom.{name}.dcm") for name in ("seg", "binary", "C2")}
    segmentation = hd.seg.segread(tmp_path / "CMU-1-dicom.seg.dcm")
    labels = segmentation.get_total_pixel_matrix(combine_segments=True)
    binary = hd.seg.segread(tmp_path / "CMU-1-dicom.binary.dcm").get_total_pixel_matrix(combine_segments=True)
    shares = files["C2"].get_total_pixel_matrix()
    assert segmentation.segmentation_type.value == "LABELMAP"
    assert segmentation.get_segment_description(2).segment_label == "C1 tumour, solid"
    rows, columns = np.indices(labels.shape).reshape(2, -1)
    centres = level0(segmentation, source, np.stack([columns + 0.5, rows + 0.5], 1))
    inside = (centres[:, None] >= bag.coords - 1e-3) & (centres[:, None] < bag.coords + 256 - 1e-3)
    patch = np.where(inside.all(2).any(1), inside.all(2).argmax(1), -1)
    np.testing.assert_array_equal(labels.ravel(), np.where(patch >= 0, made.labels[patch] + 1, 0))
    np.testing.assert_allclose(shares.ravel(), np.where(patch >= 0, made.assignment[patch, 2], 0), atol=1e-6)
    assert ((binary > 0) == (labels > 0)).all()
    covered = (labels > 0).sum() * (256 if len(offsets) == 1 else 16) ** 2
    assert covered == len(bag) * 256**2
    for image in files.values():
        assert image.FrameOfReferenceUID == source.FrameOfReferenceUID
        assert image.StudyInstanceUID == source.StudyInstanceUID
        assert image.ContainerIdentifier == source.ContainerIdentifier


def test_a_slide_that_is_no_dicom_is_refused(shared_data, tmp_path):
    svs = shared_data / "slides" / "CMU-1-Small-Region.svs"
    for slides, found in (({"CMU-1-dicom": svs}, "svs"), (None, "no slide")):
        with pytest.raises(InputError, match=found):
            panther.make_map(make_bag(), PROTOTYPES, slides=slides, output=tmp_path, formats=["dicom"])

"""Maps as DICOM, in the frame of reference of a DICOM slide: a labelmap (or binary) segmentation, and a posterior as a parametric map.

A pixel is a patch where all patches lie on one grid, else a sixteenth of one; the place of the first pixel and its spacing put them on the slide.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from panther.errors import InputError
from panther.explain.geometry import Grid, View, raster
from panther.explain.palette import rgb_values
from panther.explain.slide_map import SlideMap
from panther.store import atomic_write, hash_of
from panther.version import __version__

# format of maps -> name and type of the segmentation
KINDS = {"dicom": ("seg", "LABELMAP"), "dicom-seg": ("binary", "BINARY")}
PARTS = 16  # of a patch, where several grids overlay each other
TISSUE = ("85756007", "SCT", "Tissue")
SERIES = 8000  # number of the first series; unlikely to be taken


def write_dicom(
    slide_map: SlideMap, image: Path | None, folder: Path, prototype: int, formats: Sequence[str]
) -> list[Path]:
    """Write `SLIDE.seg.dcm` (labelmap) or `SLIDE.binary.dcm`, and `SLIDE.C3.dcm`, the posteriors of ``prototype``."""
    source = source_of(image)
    index, pitch, corner = pixels_of(slide_map.grid)
    where = placement(source, corner, pitch)
    labels = np.where(index >= 0, slide_map.labels[index] + 1, 0)  # 0: no patch
    shares = np.where(index >= 0, slide_map.assignment[index, prototype], 0).astype(np.float32)
    images: dict[str, Any] = {
        name: _segmentation(slide_map, source, labels, where, kind)
        for requested, (name, kind) in KINDS.items()
        if requested in formats
    }
    images[f"C{prototype}"] = _parametric_map(slide_map, source, shares, prototype, where)
    paths = [folder / f"{slide_map.slide}.{name}.dcm" for name in images]
    for path, dataset in zip(paths, images.values(), strict=True):
        with atomic_write(path) as temporary:
            dataset.save_as(temporary)
    return paths


def source_of(image: Path | None) -> Any:
    """Header of the finest level of a DICOM slide: a folder of its files, or one of them."""
    import pydicom
    from pydicom.errors import InvalidDicomError

    expected = "expected the slide as DICOM (`slides`): maps refer to its frame of reference"
    if image is None or (image.is_file() and image.suffix.lower() != ".dcm"):
        raise InputError(f"formats: found {'no slide' if image is None else image.name} for dicom, {expected}")
    headers = []
    for path in sorted((image if image.is_dir() else image.parent).glob("*.dcm")):
        try:
            header = pydicom.dcmread(path, stop_before_pixels=True)
        except (InvalidDicomError, OSError):
            continue
        if "VOLUME" in header.get("ImageType", ()) and "TotalPixelMatrixColumns" in header:
            headers.append((header, path == image))
    series = next((header.SeriesInstanceUID for header, is_named in headers if is_named), None)
    levels = [header for header, _ in headers if series in (None, header.SeriesInstanceUID)]
    if not levels:
        raise InputError(f"formats: {image.name} holds no level of a DICOM slide, {expected}")
    return max(levels, key=lambda header: header.TotalPixelMatrixColumns)


def pixels_of(grid: Grid) -> tuple[np.ndarray, float, np.ndarray]:
    """Index (h, w) of the patch under each pixel, -1 where there is none; the side of a pixel and the corner of the first, level 0."""
    corner = grid.corners.min(0)
    pitch = grid.pitch if len(grid.origins) == 1 else grid.pitch / PARTS
    width, height = np.ceil((grid.corners.max(0) + grid.pitch - corner) / pitch - 1e-9).astype(int).tolist()
    blank = np.broadcast_to(np.uint8(0), (height, width, 3))  # only its shape is used
    return raster(grid, View(blank, (1 / pitch, 1 / pitch), (float(corner[0]), float(corner[1])))), pitch, corner


def placement(source: Any, corner: np.ndarray, pitch: float) -> Mapping[str, Any]:
    """Place, orientation and spacing of an image whose first pixel has its corner at ``corner`` of level 0."""
    from highdicom import PixelMeasuresSequence, PlaneOrientationSequence, PlanePositionSequence
    from highdicom.spatial import ImageToReferenceTransformer

    spacing = [float(value) for value in source.SharedFunctionalGroupsSequence[0].PixelMeasuresSequence[0].PixelSpacing]
    origin = source.TotalPixelMatrixOriginSequence[0]
    start = (
        origin.XOffsetInSlideCoordinateSystem,
        origin.YOffsetInSlideCoordinateSystem,
        origin.get("ZOffsetInSlideCoordinateSystem", 0),
    )
    to_slide = ImageToReferenceTransformer([float(value) for value in start], source.ImageOrientationSlide, spacing)
    centre = to_slide((corner + pitch / 2)[None])[0]  # DICOM places the centres of pixels
    thickness = source.SharedFunctionalGroupsSequence[0].PixelMeasuresSequence[0].get("SliceThickness", 0.001)
    return {
        "pixel_measures": PixelMeasuresSequence([value * pitch for value in spacing], float(thickness)),
        "plane_orientation": PlaneOrientationSequence("SLIDE", [float(v) for v in source.ImageOrientationSlide]),
        "plane_positions": [PlanePositionSequence("SLIDE", centre.tolist(), (1, 1))],
    }


def _segmentation(slide_map: SlideMap, source: Any, labels: np.ndarray, where: Mapping[str, Any], kind: str) -> Any:
    from highdicom import AlgorithmIdentificationSequence
    from highdicom.color import CIELabColor
    from highdicom.seg import Segmentation, SegmentDescription
    from pydicom.sr.codedict import codes
    from pydicom.sr.coding import Code

    algorithm = AlgorithmIdentificationSequence("PANTHER", codes.cid7162.ArtificialIntelligence, __version__)
    colours = rgb_values(slide_map.prototype_colours).tolist()
    present = [c for c in range(slide_map.prototypes) if kind == "LABELMAP" or (labels == c + 1).any()]
    segments = [
        SegmentDescription(
            number,
            slide_map.title(c)[:64],
            Code(*TISSUE),
            Code(*TISSUE),
            "AUTOMATIC",
            algorithm,
            display_color=CIELabColor.from_rgb(*colours[c]),
        )
        for number, c in enumerate(present, 1)
    ]
    lookup = np.zeros(slide_map.prototypes + 1, np.uint8 if slide_map.prototypes < 256 else np.uint16)
    lookup[[c + 1 for c in present]] = range(1, len(present) + 1)
    arguments = _about(slide_map, source, labels, kind, SERIES)
    arguments["omit_empty_frames"] = False  # tiles are found by their order
    return Segmentation([source], lookup[labels][None], kind, segments, **arguments, **where)


def _parametric_map(
    slide_map: SlideMap, source: Any, shares: np.ndarray, prototype: int, where: Mapping[str, Any]
) -> Any:
    from highdicom.pm import ParametricMap, RealWorldValueMapping
    from pydicom.sr.codedict import codes

    text = f"posterior of {slide_map.title(prototype)}"
    values = RealWorldValueMapping(f"C{prototype}", text[:64], codes.UCUM.NoUnits, (0.0, 1.0), slope=1.0, intercept=0.0)
    arguments = _about(slide_map, source, shares, f"C{prototype}", SERIES + 1)
    arguments |= {"contains_recognizable_visual_features": False, "real_world_value_mappings": [values]}
    arguments |= {"window_center": 0.5, "window_width": 1.0, "content_description": text[:64]}
    return ParametricMap([source], shares[None], **arguments, **where)


def _about(slide_map: SlideMap, source: Any, pixels: np.ndarray, kind: str, series: int) -> dict[str, Any]:
    """Tiles, and identifiers, which are the same for the same map of the same slide."""
    from pydicom.uid import generate_uid

    side = min(512, max(pixels.shape))
    parts = [source.SOPInstanceUID, kind, hash_of([slide_map.names], slide_map.assignment.tobytes())]
    return {
        "tile_pixel_array": True,
        "tile_size": (side, side),
        "dimension_organization_type": "TILED_FULL",
        "series_instance_uid": generate_uid(entropy_srcs=[*parts, "series"]),
        "series_number": series,
        "sop_instance_uid": generate_uid(entropy_srcs=parts),
        "instance_number": 1,
        "manufacturer": "panther-wsi",
        "manufacturer_model_name": "panther-wsi",
        "software_versions": __version__,
        "device_serial_number": "none",
    }

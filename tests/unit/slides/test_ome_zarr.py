"""OME-Zarr 0.4 (Zarr 2) and 0.5 (Zarr 3) as slides: the same pixels, resolution and levels; what is no RGB slide is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from panther.errors import InputError
from panther.slides import list_slides, open_slide

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 255, (300, 420, 3)).astype(np.uint8)


def write_image(
    path: Path,
    version: str = "0.4",
    axes: str = "cyx",
    pixels: Any = PIXELS,
    unit: str | None = "micrometer",
    scale: float = 0.5,
) -> Path:
    """An image of two levels, by zarr alone."""
    root = zarr.open_group(path, mode="w", zarr_format=2 if version == "0.4" else 3)
    datasets = []
    for level, part in enumerate((pixels, pixels[::2, ::2])):
        order = np.moveaxis(part, -1, 0) if axes.endswith("yx") else part
        array = order.reshape([1] * (len(axes) - 3) + list(order.shape)) if axes[0] == "t" else order
        if axes == "tczyx":
            array = order[None, :, None]
        chunks = tuple(min(128, side) for side in array.shape)
        root.create_array(str(level), data=np.ascontiguousarray(array), chunks=chunks)
        sizes = [scale * 2**level if axis in "yx" else 1.0 for axis in axes]
        datasets.append({"path": str(level), "coordinateTransformations": [{"type": "scale", "scale": sizes}]})
    kinds = {"c": "channel", "t": "time"}
    described = [
        {"name": axis, "type": kinds.get(axis, "space"), **({"unit": unit} if unit and axis in "zyx" else {})}
        for axis in axes
    ]
    image = [{"axes": described, "datasets": datasets, "name": "x"}]
    if version == "0.4":
        root.attrs["multiscales"] = [image[0] | {"version": "0.4"}]
    else:
        root.attrs["ome"] = {"version": "0.5", "multiscales": image}
    return path


@pytest.mark.parametrize("version", ["0.4", "0.5"])
@pytest.mark.parametrize("axes", ["cyx", "tczyx", "yxc"])
def test_pixels_levels_and_resolution_are_those_of_the_image(tmp_path, version, axes):
    with open_slide(write_image(tmp_path / "a.b.ome.zarr", version, axes)) as slide:
        assert slide.name == "a.b"
        assert slide.level_dimensions == ((420, 300), (210, 150))
        assert slide.mpp == 0.5
        np.testing.assert_array_equal(slide.read_region(100, 51, 0, 200, 140), PIXELS[51:191, 100:300])
        np.testing.assert_array_equal(slide.read_region(100, 50, 1, 60, 40), PIXELS[::2, ::2][25:65, 50:110])
        edge = slide.read_region(400, 290, 0, 40, 40)
        np.testing.assert_array_equal(edge[:10, :20], PIXELS[290:, 400:])
        assert (edge[10:] == 255).all()


@pytest.mark.parametrize(
    ("change", "culprit"),
    [
        ({"pixels": PIXELS.astype(np.uint16)}, "uint16"),
        ({"pixels": np.concatenate([PIXELS, PIXELS], -1)}, "c=6"),
        ({"unit": None}, "no resolution"),
        ({"scale": 0.001}, "not plausible"),
        ({"unit": "parsec"}, "no resolution"),
    ],
)
def test_what_is_no_slide_is_refused(tmp_path, change, culprit):
    with pytest.raises(InputError, match=culprit):
        open_slide(write_image(tmp_path / "s.zarr", **change))


def test_a_nanometre_is_a_thousandth_and_a_whole_scale_multiplies(tmp_path):
    path = write_image(tmp_path / "s.zarr", unit="nanometer", scale=250.0)
    with open_slide(path) as slide:
        assert slide.mpp == 0.25
    root = zarr.open_group(path, mode="r+")
    image = root.attrs["multiscales"][0]
    root.attrs["multiscales"] = [image | {"coordinateTransformations": [{"type": "scale", "scale": [1, 2, 2]}]}]
    with open_slide(path) as slide:
        assert slide.mpp == 0.5


def test_images_are_listed_and_stores_of_features_are_not(tmp_path):
    write_image(tmp_path / "slides" / "one.ome.zarr")
    write_image(tmp_path / "slides" / "two.zarr" / "0", "0.5")  # bioformats2raw
    zarr.open_group(tmp_path / "slides" / "two.zarr", mode="a", zarr_format=3)
    zarr.open_group(tmp_path / "slides" / "features.zarr", mode="w").create_group("tables")
    assert [ref.name for ref in list_slides([tmp_path / "slides"]).refs] == ["one", "two"]
    with pytest.raises(InputError, match="multiscales"):
        open_slide(tmp_path / "slides" / "features.zarr")


def test_a_damaged_chunk_fails_alone(tmp_path):
    path = write_image(tmp_path / "s.zarr", axes="yxc")
    (path / "0" / "0.0.0").write_bytes(b"nonsense")
    with open_slide(path) as slide:
        with pytest.raises(InputError, match="cannot be decoded"):
            slide.read_region(0, 0, 0, 50, 50)
        np.testing.assert_array_equal(slide.read_region(256, 128, 0, 50, 50), PIXELS[128:178, 256:306])


def test_images_of_the_reference_implementation_are_read(tmp_path):
    ome_zarr = pytest.importorskip("ome_zarr.writer", reason="ome-zarr is not installed")
    from ome_zarr.format import FormatV04, FormatV05

    for version, form in (("0.4", FormatV04()), ("0.5", FormatV05())):
        path = tmp_path / f"{version}.zarr"
        root = zarr.open_group(path, mode="w", zarr_format=2 if version == "0.4" else 3)
        scales = [[{"type": "scale", "scale": [1.0, 0.25, 0.25]}], [{"type": "scale", "scale": [1.0, 0.5, 0.5]}]]
        axes = [{"name": "c", "type": "channel"}, *({"name": n, "type": "space", "unit": "micrometer"} for n in "yx")]
        whole = np.moveaxis(PIXELS, -1, 0)
        ome_zarr.write_multiscale(
            [whole, whole[:, ::2, ::2]], root, fmt=form, axes=axes, coordinate_transformations=scales
        )
        with open_slide(path) as slide:
            assert slide.mpp == 0.25
            np.testing.assert_array_equal(slide.read_region(0, 0, 0, 420, 300), PIXELS)

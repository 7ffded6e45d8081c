"""Slides whose truth is known: smooth waves for geometry, drawn tissue with artefacts for segmentation."""

from pathlib import Path

import numpy as np
from scipy import ndimage

GLASS = (244, 243, 246)
Box = tuple[int, int, int, int]  # top, bottom, left, right


def halved(image: np.ndarray) -> np.ndarray:
    """Next level of a pyramid: means of 2 x 2, a last odd row or column dropped."""
    h, w = image.shape[0] // 2 * 2, image.shape[1] // 2 * 2
    blocks = image[:h, :w].reshape(h // 2, 2, w // 2, 2, 3).astype(np.float64)
    return np.floor(blocks.mean((1, 3)) + 0.5).astype(np.uint8)


def write_pyramid(
    path: Path, image: np.ndarray, mpp: float | tuple[float, float] | None, levels: int = 3, compression: str = "zlib"
) -> list[np.ndarray]:
    """Tiled pyramidal TIFF as OpenSlide reads it; returns its levels."""
    import tifffile

    pyramid = [image]
    while len(pyramid) < levels:
        pyramid.append(halved(pyramid[-1]))
    x, y = mpp if isinstance(mpp, tuple) else (mpp, mpp)
    about = {} if x is None or y is None else {"resolution": (1e4 / x, 1e4 / y), "resolutionunit": "CENTIMETER"}
    with tifffile.TiffWriter(path, bigtiff=True) as file:
        for index, level in enumerate(pyramid):
            file.write(
                level,
                tile=(128, 128),
                photometric="rgb",
                compression=compression,
                subfiletype=int(index > 0),
                metadata=None,
                **about,
            )
    return pyramid


def wave(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Colours (..., 3) at places in micrometres; wavelengths of tens of micrometres, so that sampling loses nothing."""
    return np.stack([128 + 80 * np.sin(x / 7.0), 128 + 80 * np.cos(y / 9.0), 128 + 80 * np.sin((x + y) / 11.0)], -1)


def wave_image(width: int, height: int, mpp: float) -> np.ndarray:
    """The waves as seen with pixels of ``mpp``."""
    x, y = np.meshgrid((np.arange(width) + 0.5) * mpp, (np.arange(height) + 0.5) * mpp)
    return np.floor(wave(x, y) + 0.5).astype(np.uint8)


def disc(shape: tuple[int, int], centre: tuple[float, float], radius: float) -> np.ndarray:
    y, x = np.ogrid[: shape[0], : shape[1]]
    return (x - centre[0]) ** 2 + (y - centre[1]) ** 2 <= radius**2


def paint(image: np.ndarray, mask: np.ndarray, colour: tuple[int, int, int], spread: float, seed: int) -> None:
    """Fill a mask with a colour that varies as tissue does: smooth spots, not white noise."""
    rng = np.random.default_rng(seed)
    texture = ndimage.gaussian_filter(rng.normal(size=(*mask.shape, 1)), (2, 2, 0)) * 3.5 * spread
    painted = np.clip(np.array(colour) + texture * (0.6, 1.0, 0.7), 0, 255)
    image[mask] = painted[mask].astype(np.uint8)


def glass(height: int, width: int, seed: int = 0) -> np.ndarray:
    noise = np.random.default_rng(seed).normal(scale=1.5, size=(height, width, 3))
    return np.clip(np.array(GLASS) + noise, 0, 255).astype(np.uint8)


def tissue_slide(height: int = 700, width: int = 900) -> tuple[np.ndarray, np.ndarray]:
    """Image at 4 um/px of two pieces of tissue, one with a large hole, and the mask of them."""
    image = glass(height, width)
    truth = disc((height, width), (300, 330), 180) & ~disc((height, width), (330, 300), 50)
    paint(image, truth, (205, 120, 175), 14, 1)
    second = disc((height, width), (680, 380), 110)
    paint(image, second, (150, 90, 165), 14, 2)
    return image, truth | second


def iou(a: np.ndarray, b: np.ndarray) -> float:
    return float((a & b).sum() / (a | b).sum())

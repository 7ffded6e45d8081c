"""Plain images (png, jpg, bmp) as slides of one level, whose resolution the user gives."""

import warnings
from pathlib import Path
from types import MappingProxyType

import numpy as np
from PIL import Image

from panther.errors import InputError
from panther.slides.slide import Size, slide_readers

FORMATS = ("PNG", "JPEG", "BMP")
LARGEST = 30_000 * 30_000  # pixels, held in memory (2.7 GB)


@slide_readers.register("image")
class ImagePixels:
    """An image in memory."""

    properties: MappingProxyType[str, str] = MappingProxyType({})
    vendor = "image"

    def __init__(self, path: Path) -> None:
        with warnings.catch_warnings():  # Pillow warns of sizes that are accepted here
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            image = Image.open(path, formats=FORMATS)
        with image:
            if image.width * image.height > LARGEST:
                size = f"{image.width} x {image.height} pixels, expected at most {LARGEST:,} in a plain image"
                raise InputError(f"{path.name}: found {size}; convert it to a pyramidal TIFF")
            try:
                self._array = _on_white(image)
            except (OSError, SyntaxError) as error:  # Pillow's errors for a file that is cut short
                raise InputError(f"{path.name}: the image is damaged ({error})") from error
        self.level_dimensions: tuple[Size, ...] = ((self._array.shape[1], self._array.shape[0]),)

    def read(self, x: int, y: int, level: int, width: int, height: int) -> np.ndarray:
        """Pixels (height, width, 3)."""
        return self._array[y : y + height, x : x + width]

    def close(self) -> None:
        """Do nothing: no file is open."""


def _on_white(image: Image.Image) -> np.ndarray:
    if image.mode in ("RGBA", "LA", "P", "PA"):
        rgba = image.convert("RGBA")
        canvas = Image.new("RGBA", rgba.size, (255, 255, 255, 255))
        return np.asarray(Image.alpha_composite(canvas, rgba).convert("RGB"))
    if image.mode not in ("RGB", "L", "CMYK", "YCbCr"):
        raise ValueError(f"found pixels of the mode {image.mode}, expected 8-bit colours")
    return np.asarray(image.convert("RGB"))

"""From the pixels of a patch to the pixels that an encoder sees."""

from dataclasses import dataclass

import numpy as np
from PIL import Image

from panther.encoders._base import EncoderInfo

RESAMPLING = {"bicubic": Image.Resampling.BICUBIC, "bilinear": Image.Resampling.BILINEAR}


@dataclass(frozen=True)
class Preprocess:
    """The shorter side is brought to ``resize``, then the centre of ``size`` is cut out: what model cards call Resize, CenterCrop."""

    size: int
    resize: int
    interpolation: str = "bicubic"

    @classmethod
    def of(cls, about: EncoderInfo) -> "Preprocess":
        """What an encoder wants."""
        return cls(about.size, about.resize or about.size, about.interpolation)

    def __call__(self, pixels: np.ndarray) -> np.ndarray:
        """Pixels (h, w, 3) uint8 -> (size, size, 3); Pillow averages when it makes an image smaller."""
        height, width = pixels.shape[:2]
        short = min(height, width)
        if short != self.resize:
            target = (
                max(round(width * self.resize / short), self.resize),
                max(round(height * self.resize / short), self.resize),
            )
            pixels = np.asarray(Image.fromarray(pixels).resize(target, RESAMPLING[self.interpolation]))
            height, width = pixels.shape[:2]
        top, left = (height - self.size) // 2, (width - self.size) // 2
        return pixels[top : top + self.size, left : left + self.size]

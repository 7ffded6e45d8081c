"""What is dark or coloured on a slide and yet no tissue: ink, black borders."""

import numpy as np
from scipy import ndimage

from panther.slides.morphology import within

BLACK = 70  # of 255; the darkest stained nuclei at a few um/px are brighter in at least one colour
CORE = 24.0  # um; paler ink counts within this distance of strong ink


def black(image: np.ndarray, mpp: float, min_area: float) -> np.ndarray:
    """Black regions (h, w) that touch the border of the image or are as large as a pen's stroke.

    Smaller ones amid tissue are pigment (carbon in lungs, melanin) and stay.
    """
    dark = image.max(-1) < BLACK
    labels, count = ndimage.label(dark)
    if count == 0:
        return dark
    out = np.bincount(labels.ravel()) >= min_area / mpp**2
    for edge in (labels[0], labels[-1], labels[:, 0], labels[:, -1]):
        out[edge] = True
    out[0] = False
    # the rim of a border is a mixture of black and white: grey, and coloured where JPEG has smeared it
    return within(out[labels], 3 * 4.0 / mpp)


def pen_marks(image: np.ndarray, mpp: float) -> np.ndarray:
    """Ink of green, blue, turquoise or red pens (h, w): hues that stains do not have, saturated as no stain is.

    Found where it is strong, then followed into its paler rim.
    """
    strong = np.zeros(image.shape[:2], bool)
    pale = np.zeros(image.shape[:2], bool)
    for top in range(0, len(image), 512):  # in bands: hues of a whole slide would take a gigabyte
        band = slice(top, top + 512)
        hue, saturation, value = _hsv(image[band])
        for low, high, core, rim in INKS:
            inside = (hue >= low) & (hue <= high) if low < high else (hue >= low) | (hue <= high)
            strong[band] |= inside & (saturation > core) & (value > 40)
            pale[band] |= inside & (saturation > rim)
    strong = ndimage.binary_opening(strong, iterations=1)  # single pixels are noise
    if not strong.any():
        return strong
    return within((pale & within(strong, CORE / mpp)) | strong, 2 * 4.0 / mpp)


# hue from, hue to (degrees), saturation of strong ink, of its rim. Haematoxylin lies at 240-290, eosin at 310-350, DAB at 15-40.
INKS = (
    (65.0, 175.0, 0.20, 0.08),  # green
    (175.0, 238.0, 0.42, 0.15),  # turquoise, blue
    (352.0, 10.0, 0.78, 0.45),  # red; blood is less saturated
)


def _hsv(image: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Hue in degrees, saturation 0 to 1, value 0 to 255, each (h, w)."""
    r, g, b = (image[..., k].astype(np.float32) for k in range(3))
    value = np.maximum(np.maximum(r, g), b)
    spread = value - np.minimum(np.minimum(r, g), b)
    safe = np.maximum(spread, 1e-6)
    hue = np.where(value == r, (g - b) / safe, np.where(value == g, 2 + (b - r) / safe, 4 + (r - g) / safe))
    return (60 * hue) % 360, spread / np.maximum(value, 1), value

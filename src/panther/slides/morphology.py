"""Masks: grown, closed, opened, cleaned. Radii and areas in pixels."""

import numpy as np
from scipy import ndimage


def within(mask: np.ndarray, radius: float) -> np.ndarray:
    """Pixels whose centre lies within ``radius`` of one of the mask's (dilation with a disc).

    A disc is a stack of rows: each row's width is one running maximum, and the rows are shifted and joined. For the small radii
    here that is several times faster than distances.
    """
    if radius < 1 or not mask.any():
        return mask.copy()
    out = np.zeros_like(mask)
    bits = mask.view(np.uint8)
    reach = int(radius)
    widths = [int(np.sqrt(radius * radius - dy * dy)) for dy in range(reach + 1)]
    for width in sorted(set(widths)):
        row = ndimage.maximum_filter1d(bits, 2 * width + 1, axis=1, mode="constant").view(bool) if width else mask
        for dy in (dy for dy, other in enumerate(widths) if other == width and dy < len(mask)):
            out[dy:] |= row[: len(mask) - dy]
            out[: len(mask) - dy] |= row[dy:]
    return out


def closed(mask: np.ndarray, radius: float) -> np.ndarray:
    """Closing with a disc; what touches the border goes on beyond it."""
    margin = 2 * int(radius) + 2
    wide = np.pad(mask, margin, mode="edge")
    grown = within(wide, radius)
    return ~within(~grown, radius)[margin:-margin, margin:-margin]


def opened(mask: np.ndarray, radius: float) -> np.ndarray:
    """Opening with a disc; tissue goes on beyond the border, so the border erodes nothing."""
    margin = int(radius) + 1
    wide = np.pad(mask, margin, mode="edge")
    kept = ~within(~wide, radius)
    return (within(kept, radius) & wide)[margin:-margin, margin:-margin]


def drop_small(mask: np.ndarray, pixels: float) -> np.ndarray:
    """Mask without regions of fewer pixels."""
    labels, count = ndimage.label(mask)
    if count == 0:
        return mask
    sizes = np.bincount(labels.ravel())
    keep = sizes >= pixels
    keep[0] = False
    return keep[labels]


def fill_small_holes(mask: np.ndarray, pixels: float) -> np.ndarray:
    """Mask with holes of fewer pixels filled; what touches the border is no hole."""
    labels, count = ndimage.label(~mask, np.ones((3, 3), int))
    if count == 0:
        return mask
    sizes = np.bincount(labels.ravel())
    fill = sizes < pixels
    fill[np.unique(np.concatenate([labels[0], labels[-1], labels[:, 0], labels[:, -1]]))] = False
    fill[0] = True  # the mask itself
    return fill[labels]

"""Make the colours of the prototypes, `panther.explain.palette.PALETTE`, by their rule: `python docs/make_palette.py`.

The first seven are Okabe and Ito's (without black). Each further colour is the one, of a fixed grid of sRGB colours neither too pale
for white paper nor too dark for text, that lies farthest from all before it, the distance between two colours being the smallest as
seen by normal, protanopic, deuteranopic and tritanopic eyes.
"""

import numpy as np

from panther.explain.palette import OKABE_ITO, PALETTE, rgb_values

LIGHTNESS = (0.32, 0.92)  # of OKLab, 0 black to 1 white
MIN_CHROMA = 0.03  # greys are the slide's background and the heatmap's zero
STEP = 15  # of 255: the candidates are 18 x 18 x 18 colours

# Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB; normal vision first
VISION = np.array(
    [
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
    ]
)


def generate(count: int) -> tuple[str, ...]:
    """Build the palette by its rule."""
    levels = np.arange(0, 256, STEP)
    candidates = np.stack(np.meshgrid(levels, levels, levels, indexing="ij"), -1).reshape(-1, 3).astype(np.uint8)
    lab = oklab(candidates)[0]
    chroma = np.hypot(lab[:, 1], lab[:, 2])
    fit = (lab[:, 0] >= LIGHTNESS[0]) & (lab[:, 0] <= LIGHTNESS[1]) & (chroma >= MIN_CHROMA)
    candidates = candidates[fit]
    seen = oklab(candidates)  # (4, n, 3)
    chosen = rgb_values(OKABE_ITO)
    nearest = np.full(len(candidates), np.inf)
    for colour in oklab(chosen).transpose(1, 0, 2):  # (4, 3)
        nearest = np.minimum(nearest, difference(seen, colour[:, None]))
    picked: list[int] = []
    while len(OKABE_ITO) + len(picked) < count:
        # rounded: the last digit of a machine must not decide which of two equally distant colours comes first
        picked.append(int(np.round(nearest, 9).argmax()))
        nearest = np.minimum(nearest, difference(seen, seen[:, picked[-1]][:, None]))
    found = [*OKABE_ITO, *(f"#{r:02X}{g:02X}{b:02X}" for r, g, b in candidates[picked].tolist())]
    return tuple(found[:count])


def difference(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Smallest distance over the four kinds of vision; both (4, ..., 3) as of `oklab`."""
    return np.linalg.norm(first - second, axis=-1).min(0)


def oklab(colours: np.ndarray) -> np.ndarray:
    """Colours (n, 3) uint8 as seen by the four kinds of vision, (4, n, 3) in OKLab, where distances are about those of eyes."""
    part = colours / 255.0
    linear = np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.einsum("vij,nj->vni", VISION, linear), 0, 1)
    cones = seen @ np.array(
        [
            [0.4122214708, 0.2119034982, 0.0883024619],
            [0.5363325363, 0.6806995451, 0.2817188376],
            [0.0514459929, 0.1073969566, 0.6299787005],
        ]
    )
    return np.cbrt(cones) @ np.array(
        [
            [0.2104542553, 1.9779984951, 0.0259040371],
            [0.7936177850, -2.4285922050, 0.7827717662],
            [-0.0040720468, 0.4505937099, -0.8086757660],
        ]
    )


if __name__ == "__main__":
    found = generate(len(PALETTE))
    for start in range(0, len(found), 8):
        print("    " + " ".join(f'"{colour}",' for colour in found[start : start + 8]))
    print("as in the package" if found == PALETTE else "NOT as in the package")

"""Sixty-four colours for prototypes: C3 has the same one on every slide, in every run, in every picture.

The rule: the first seven are Okabe and Ito's (without black). Each further colour is the one, of a fixed grid of sRGB
colours neither too pale for white paper nor too dark for text, that lies farthest from all before it, the distance between two colours being the
smallest as seen by normal, protanopic, deuteranopic and tritanopic eyes. So the first n are a good palette for every n, and
more prototypes never change the colours of the first. `generate` is that rule and `PALETTE` its result; a test compares them.
"""

import numpy as np

OKABE_ITO = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
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

# fmt: off
PALETTE: tuple[str, ...] = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#5A1E00",
    "#1E0F96", "#5AFFFF", "#784B4B", "#B4C3A5", "#A569FF", "#4B0FE1", "#B42D87", "#B4F0A5",
    "#4B2D5A", "#87D2FF", "#C30000", "#E1C369", "#87B478", "#692DB4", "#964BE1", "#69785A",
    "#781E2D", "#1E6978", "#8787E1", "#D296C3", "#E100B4", "#E1783C", "#960F00", "#A5D2D2",
    "#4B3C87", "#5A3C69", "#5A692D", "#780FFF", "#8769D2", "#F087FF", "#3C1E69", "#F0B40F",
    "#D23C4B", "#96F0D2", "#5A8787", "#785A96", "#D2E178", "#69A55A", "#F04B87", "#004B3C",
    "#87C3E1", "#C3B45A", "#E1000F", "#000FB4", "#963C69", "#B487C3", "#69B496", "#783CD2",
    "#A587FF", "#C3D296", "#E1A5C3", "#782D4B", "#695AFF", "#E1F078", "#C369A5", "#96C387",
)
# fmt: on


def colour(prototype: int) -> str:
    """Colour of a prototype as #RRGGBB; from C64 on they begin anew."""
    return PALETTE[prototype % len(PALETTE)]


def rgb(prototype: int) -> tuple[int, int, int]:
    """Colour of a prototype, 0 to 255 each."""
    red, green, blue = _rgb([colour(prototype)])[0].tolist()
    return red, green, blue


def table(count: int) -> np.ndarray:
    """Colours (count, 3) uint8 of the first prototypes."""
    return _rgb([colour(c) for c in range(count)])


def generate(count: int) -> tuple[str, ...]:
    """Build the palette by its rule."""
    levels = np.arange(0, 256, STEP)
    candidates = np.stack(np.meshgrid(levels, levels, levels, indexing="ij"), -1).reshape(-1, 3).astype(np.uint8)
    lab = oklab(candidates)[0]
    chroma = np.hypot(lab[:, 1], lab[:, 2])
    fit = (lab[:, 0] >= LIGHTNESS[0]) & (lab[:, 0] <= LIGHTNESS[1]) & (chroma >= MIN_CHROMA)
    candidates = candidates[fit]
    seen = oklab(candidates)  # (4, n, 3)
    chosen = _rgb(OKABE_ITO)
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


def _rgb(colours: "list[str] | tuple[str, ...]") -> np.ndarray:
    return np.array([[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in colours], np.uint8).reshape(-1, 3)

"""Whole slides for measurements: JPEG tiles of real tissue (or noise), put together anew, as large as one likes, each encoded once."""

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

TILE, FACTOR, LEVELS = 256, 4, 3
GLASS = 244
TISSUE = Path(__file__).resolve().parents[2] / "shared" / "data" / "slides" / "CMU-1-Small-Region.svs"


def tissue_tiles(count: int, source: Path = TISSUE, seed: int = 0) -> np.ndarray:
    """Distinct tiles (count, 256, 256, 3) of tissue; noise where there is no slide, which is harder to decode."""
    rng = np.random.default_rng(seed)
    if not source.exists():
        return rng.integers(0, 256, (count, TILE, TILE, 3), dtype=np.uint8)
    from openslide import OpenSlide

    with OpenSlide(source) as slide:
        whole = np.asarray(slide.read_region((0, 0), 0, slide.dimensions).convert("RGB"))
    found: list[np.ndarray] = []
    while len(found) < count:
        y, x = (int(rng.integers(0, side - TILE)) for side in whole.shape[:2])
        tile = whole[y : y + TILE, x : x + TILE]
        if np.ptp(tile, axis=2).mean() > 25:  # coloured: no glass
            found.append(tile)
    return np.stack(found)


def write_slide(path: Path, tiles: np.ndarray, patches: int, seed: int) -> int:
    """Write a slide with about so many tiles of tissue, in one ellipse on glass, 0.5 um per pixel; returns its bytes."""
    import tifffile

    rng = np.random.default_rng(seed)
    rows = FACTOR ** (LEVELS - 1) * max(1, round(np.sqrt(patches * 1.9 / 1.5) / FACTOR ** (LEVELS - 1)))
    columns = FACTOR ** (LEVELS - 1) * max(1, round(rows * 1.5 / FACTOR ** (LEVELS - 1)))
    y, x = np.mgrid[:rows, :columns]
    inside = ((y + 0.5) / rows * 2 - 1) ** 2 + ((x + 0.5) / columns * 2 - 1) ** 2 < patches * 4 / (
        rows * columns * np.pi
    )
    layout = np.where(inside, rng.integers(1, len(tiles) + 1, inside.shape), 0)
    level = np.concatenate([np.full_like(tiles[:1], GLASS), tiles])  # what the numbers of the layout stand for
    with tifffile.TiffWriter(path, bigtiff=True) as file:
        for number in range(LEVELS):
            shape = (layout.shape[0] * TILE, layout.shape[1] * TILE, 3)
            encoded = [_jpeg(tile) for tile in level]
            file.write(
                (encoded[index] for index in layout.ravel()),
                shape=shape,
                dtype=np.uint8,
                tile=(TILE, TILE),
                compression="jpeg",
                photometric="ycbcr",
                subsampling=(2, 2),
                subfiletype=int(number > 0),
                resolution=(20_000 / FACTOR**number, 20_000 / FACTOR**number),
                resolutionunit="CENTIMETER",
            )
            if number < LEVELS - 1:
                layout, level = _coarser(layout, level)
    return path.stat().st_size


def _coarser(layout: np.ndarray, level: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The next level: a tile for each group of 4 x 4, glass but once."""
    small = level.reshape(len(level), TILE // FACTOR, FACTOR, TILE // FACTOR, FACTOR, 3).mean((2, 4)).astype(np.uint8)
    made, places = [np.full((TILE, TILE, 3), GLASS, np.uint8)], []
    for group in _groups(layout):
        places.append(len(made) if group.any() else 0)
        if group.any():
            made.append(np.concatenate(np.concatenate(small[group], axis=1), axis=1).reshape(TILE, TILE, 3))
    return np.array(places).reshape(layout.shape[0] // FACTOR, layout.shape[1] // FACTOR), np.stack(made)


def _groups(layout: np.ndarray) -> Iterator[np.ndarray]:
    for row in range(0, layout.shape[0], FACTOR):
        for column in range(0, layout.shape[1], FACTOR):
            yield layout[row : row + FACTOR, column : column + FACTOR]


def _jpeg(tile: np.ndarray) -> bytes:
    out = io.BytesIO()
    Image.fromarray(tile).save(out, "JPEG", quality=80)
    return out.getvalue()

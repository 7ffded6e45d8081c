"""Banks of tiles for the questions of _blind_spot_sites.py: one per kind of tiles and spread of stains, as they are and normalised."""

import argparse
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from _planted_bank import USUAL, Bank, drawn_concentrations, encoded, laboratories, read_tiles, stained
from panther.slides.stain import NotStained, fit_slide
from panther_demo.stain import Stain, concentrations, transmitted
from panther_demo.tissues import tissues

LABORATORIES = 8
TILES = 120  # drawn, of each tissue
REAL_TISSUES = ("aca", "normal")  # what the question on real tiles is composed of


class Tiles(NamedTuple):
    """Tiles that can be shown under any stain."""

    under: Callable[[str, Stain], Iterator[np.ndarray]]  # laboratory, its stain -> pictures
    tissue: np.ndarray  # (M,)
    names: tuple[str, ...]


def bank_path(folder: Path, tiles: str, spread: float, normalised: bool = False) -> Path:
    """File of a bank."""
    return folder / f"sites_{tiles}_{spread:g}{'_macenko' if normalised else ''}.npz"


def make_site_banks(how: argparse.Namespace, needed: Iterable[tuple[str, float]]) -> None:
    """Stain and encode, of these kinds of tiles and spreads, what is not there yet."""
    how.banks.mkdir(parents=True, exist_ok=True)
    kinds = {"drawn": partial(drawn_tiles, 64 if how.quick else TILES), "real": partial(real_tiles, how.tiles)}
    for kind, spread in needed:
        for normalised in (False, True) if how.macenko else (False,):
            path = bank_path(how.banks, kind, spread, normalised)
            if not path.exists():
                make_bank(kinds[kind](), laboratories(LABORATORIES, spread), normalised, how.device).save(path)


def make_bank(tiles: Tiles, stains: dict[str, Stain], normalised: bool, device: str) -> Bank:
    """Encode the tiles under every stain; ``normalised``: each laboratory's as `panther slides --stain macenko` would show them."""
    features = {}
    for lab, stain in stains.items():
        shown = tiles.under(lab, stain)
        features[lab] = encoded(in_reference_stain(list(shown)) if normalised else shown, device=device)
    return Bank(features, tiles.tissue, tiles.names)


def in_reference_stain(pictures: list[np.ndarray]) -> Iterator[np.ndarray]:
    """Tiles of one laboratory, whose stains are found from 64 of them, in the reference's; as they are where there are not two stains."""
    try:
        fit = fit_slide("macenko", lambda number: pictures[int(number)], np.arange(len(pictures)))
    except NotStained:
        return iter(pictures)
    return map(fit, pictures)


def drawn_tiles(count: int) -> Tiles:
    """Tiles of the seven drawn tissues."""
    names = tuple(tissues.names())
    parts = [drawn_concentrations(name, count) for name in names]
    h, e = (np.concatenate([part[k] for part in parts]) for k in (0, 1))

    def under(lab: str, stain: Stain) -> Iterator[np.ndarray]:
        return stained(h, e, stain, np.random.default_rng([0, 8]))

    return Tiles(under, np.repeat(np.arange(len(names)), count), names)


def real_tiles(folder: Path) -> Tiles:
    """Real tiles; other laboratories' stains are put on them by Beer and Lambert's law."""
    found, tissue, names = read_tiles(folder)
    kept = [number for number, kind in enumerate(tissue) if names[kind] in REAL_TISSUES]
    pictures = [found[number] for number in kept]

    def under(lab: str, stain: Stain) -> Iterator[np.ndarray]:
        usual = laboratories(0, 1.0)[USUAL]
        rng = np.random.default_rng(8)
        return (
            iter(pictures) if lab == USUAL else (transmitted(*concentrations(p, usual), stain, rng) for p in pictures)
        )

    numbers = {names.index(name): number for number, name in enumerate(REAL_TISSUES)}
    return Tiles(under, np.array([numbers[int(tissue[n])] for n in kept]), REAL_TISSUES)

"""Labelled tiles: folders of images by class (as CRC-100K ships), or features of labelled patches."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from panther.errors import InputError
from panther.patches import encoder_words, same_encoder
from panther.storage.bags import list_bags
from panther.storage.readers import BAG_SUFFIXES
from panther.storage.trident import tile_names
from panther.types import Bag, Openable

if TYPE_CHECKING:
    from panther.encoders.pipeline import Pipeline

EXPECTED = "expected is a folder with one sub-folder of tile images (or of feature files) for each class"


@dataclass(frozen=True)
class LabelledTiles:
    """Features of tiles whose tissue is known."""

    features: np.ndarray  # (n, d) float32
    labels: np.ndarray  # (n,) int64
    classes: tuple[str, ...]
    source: str = "tiles"  # what to call them in a message
    encoder: str | None = None
    groups: np.ndarray | None = None  # (n,) slide of each tile, where it is known


def holds_features(place: Path) -> bool:
    """Whether tiles come as features: a folder with feature files and no images."""
    from panther.encoders.sources import TILE_SUFFIXES

    if not place.is_dir():
        raise InputError(f"{place}: there is no such folder; {EXPECTED}.")
    endings = {file.suffix.lower() for file in place.rglob("*") if file.is_file()}
    return not endings & set(TILE_SUFFIXES) and bool(endings & set(BAG_SUFFIXES))


def find_images(folder: Path, per_class: int, seed: int) -> list[str]:
    """Names (CLASS/.../TILE) of at most ``per_class`` images of each sub-folder, drawn at random; a class without images is refused."""
    from panther.encoders.sources import TileFolder

    classes = _class_folders(folder)
    loose = [name for name in TileFolder(folder).names() if "/" not in name]
    if loose:
        raise InputError(f"{folder}: {len(loose)} images, e.g. {loose[0]}, lie beside the class folders; move them.")
    rng = np.random.default_rng(seed)
    chosen: list[str] = []
    for name in classes:
        try:
            tiles = TileFolder(folder / name).names()
        except InputError as error:
            raise InputError(
                f"{folder / name}: the class {name!r} has no tile images; fill the folder or remove it."
            ) from error
        chosen += [f"{name}/{tiles[i]}" for i in _drawn(len(tiles), per_class, rng)]
    return chosen


def encode_images(folder: Path, images: Sequence[str], pipeline: "Pipeline") -> tuple[LabelledTiles, dict[str, str]]:
    """Features of images in a folder, and a sentence for each that cannot be decoded."""
    from panther.encoders.sources import TileFolder

    made = pipeline.run(TileFolder(folder), tuple(images))
    tiles = _by_name(
        made.rows[made.kept].astype(np.float32),
        [name for name, kept in zip(images, made.kept, strict=True) if kept],
        str(folder),
        pipeline.encoder.about.name,
        images,
    )
    return tiles, {images[i]: why for i, why in made.failed.items()}


def read_features(place: Path, per_class: int, seed: int) -> LabelledTiles:
    """Features of labelled patches: `CLASS/*.h5` (one file per slide), or `CLASS.h5`, as `panther slides` makes of tiles."""
    folders = [entry.name for entry in _visible(place) if entry.is_dir()]
    if folders:
        found = {name: list_bags(place / name).refs for name in _class_folders(place)}
    else:
        found = {ref.sample: (ref,) for ref in list_bags(place).refs}
        _enough(place, tuple(found))
    rows, labels, slides, known = [], [], [], True
    bags: list[Bag] = []
    for number, refs in enumerate(found.values()):
        for ref in refs:
            bag = _checked(ref, bags[0] if bags else None)
            bags.append(bag)
            rows.append(bag.features[: len(bag)].float().numpy())
            labels += [number] * len(bag)
            names = tile_names(ref.files[0])
            nested = len(names) == len(bag) > 0 and all("/" in name for name in names)  # CLASS/SLIDE/TILE
            slides += [name.rpartition("/")[0] for name in names] if nested else [ref.sample] * len(bag)
            known = known and nested
    # one file per class says nothing about slides; several are slides, which stay together
    groups = np.array(slides) if known or len(bags) > len(found) else None
    encoder = next((bag.encoder for bag in bags if bag.encoder), None)
    tiles = LabelledTiles(np.concatenate(rows), np.array(labels), tuple(found), str(place), encoder, groups)
    return _thinned(tiles, per_class, seed)


def _by_name(
    rows: np.ndarray, names: Sequence[str], source: str, encoder: str | None, every: Sequence[str]
) -> LabelledTiles:
    """Tiles called CLASS/TILE, or CLASS/SLIDE/TILE where each slide has a folder; the classes are those of ``every`` name."""
    classes = tuple(sorted({name.split("/")[0] for name in every}))
    parts = [name.split("/") for name in names]
    number = {name: k for k, name in enumerate(classes)}
    slides = np.array(["/".join(part[1:-1]) for part in parts])
    groups = slides if len(slides) and all(len(part) > 2 for part in parts) else None
    return LabelledTiles(rows, np.array([number[part[0]] for part in parts]), classes, source, encoder, groups)


def _thinned(tiles: LabelledTiles, per_class: int, seed: int) -> LabelledTiles:
    rng = np.random.default_rng(seed)
    members = [np.flatnonzero(tiles.labels == k) for k in range(len(tiles.classes))]
    empty = [name for name, rows in zip(tiles.classes, members, strict=True) if not len(rows)]
    if empty:
        raise InputError(f"{tiles.source}: the class {empty[0]!r} has no patches; give it some or remove it.")
    keep = np.concatenate([rows[_drawn(len(rows), per_class, rng)] for rows in members])
    groups = None if tiles.groups is None else tiles.groups[keep]
    return replace(tiles, features=tiles.features[keep], labels=tiles.labels[keep], groups=groups)


def _drawn(count: int, most: int, rng: np.random.Generator) -> np.ndarray:
    return np.arange(count) if count <= most else np.sort(rng.choice(count, most, replace=False))


def _class_folders(folder: Path) -> tuple[str, ...]:
    if not folder.is_dir():
        raise InputError(f"{folder}: there is no such folder; {EXPECTED}.")
    classes = tuple(entry.name for entry in _visible(folder) if entry.is_dir())
    _enough(folder, classes)
    return classes


def _visible(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))


def _enough(place: Path, classes: tuple[str, ...]) -> None:
    if len(classes) < 2:
        found = f"one class ({classes[0]})" if classes else "no class folders"
        raise InputError(f"{place}: {found}; a classifier needs at least two classes, {EXPECTED}.")


def _checked(ref: Openable, first: Bag | None) -> Bag:
    bag = ref.open()
    if first is not None and (bag.dim != first.dim or not same_encoder(bag.encoder, first.encoder)):
        raise InputError(
            f"{bag.source}: {bag.dim} features of {encoder_words(bag.encoder)}, but {first.source} has {first.dim} of "
            f"{encoder_words(first.encoder)}; encode all tiles with one encoder."
        )
    return bag

"""From the patches of a slide, or tile images, to one bag, written whole or not at all."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from panther.encoders.pipeline import Balance, Pipeline
from panther.encoders.sources import SlidePatches, Source, TileFolder
from panther.errors import InputError
from panther.storage.trident import Coords, FeatureRows, write_bag
from panther.store import atomic_write, check_writable, hash_of

if TYPE_CHECKING:
    from panther.slides import Slide


@dataclass(frozen=True)
class Extracted:
    """What became of a slide's patches."""

    path: Path
    patches: int  # rows written
    failed: Mapping[int, str] = field(default_factory=dict)  # position among the items -> why; left out of the bag
    balance: Balance = field(default_factory=Balance)


def write_features(
    slide: "Slide", coords: Coords, pipeline: Pipeline, target: Path, key: str = "", stain: str | None = None
) -> Extracted:
    """Encode the patches at ``coords`` of a slide into a TRIDENT bag at ``target``, their stains normalised where ``stain`` says how.

    The attributes of ``coords`` travel with the features, and ``key`` is kept with them, by which a later run recognises them.
    """
    spec, places = coords.spec, coords.coords
    if spec.level is None and spec.size and spec.size_level0:  # TRIDENT's files do not say
        spec = replace(spec, level=slide.best_level(spec.size_level0 / spec.size))
    source = SlidePatches(slide.path, slide.mpp_override, spec)
    encoder = pipeline.encoder.public()
    if stain is not None:
        source, more = _normalised(source, places, stain)
        encoder = {**encoder, "encoder": f"{encoder['encoder']}+{stain}", **more}

    def write(path: Path, rows: np.ndarray, kept: np.ndarray) -> None:
        about = _attributes(encoder, slide.name, target, kept) | ({"key": key} if key else {})
        write_bag(path, _kept_rows(rows, kept, about), (places[kept], coords.attributes))

    return _encode(pipeline, source, places, target, write)


def _normalised(source: SlidePatches, places: np.ndarray, method: str) -> tuple[SlidePatches, dict[str, str]]:
    """Patches with the reference's stains, and what the features say of it; as they are where their stains cannot be told."""
    from panther.slides.stain import NotStained, fit_slide

    reading = source.open()
    try:
        fitted = fit_slide(method, reading.read, places)
    except NotStained as error:
        return source, {"stain_note": f"{error}: they were encoded as they are"}
    finally:
        reading.close()
    found = {"vectors": fitted.vectors, "strength": fitted.strength}
    return replace(source, stain=fitted), {"stain": json.dumps(found)}


def encode_tiles(folder: Path, pipeline: Pipeline, target: Path, key: str = "") -> tuple[Extracted, list[str]]:
    """Encode the tile images of a folder into one bag without coordinates; the names of the tiles are kept in `tiles`, ``key`` as for slides."""
    source = TileFolder(folder)
    names = source.names()

    def write(path: Path, rows: np.ndarray, kept: np.ndarray) -> None:
        about = _attributes(pipeline.encoder.public(), target.stem, target, kept) | ({"key": key} if key else {})
        write_bag(path, _kept_rows(rows, kept, about), tiles=[names[i] for i in np.flatnonzero(kept)])

    return _encode(pipeline, source, names, target, write), names


def folder_state(folder: Path, names: Sequence[str]) -> str:
    """Hash of the sizes and times of tiles."""
    stamps = [(folder / name).stat() for name in names]
    return hash_of([(name, stat.st_size, stat.st_mtime_ns) for name, stat in zip(names, stamps, strict=True)])


def _encode(pipeline: Pipeline, source: Source, items: Any, target: Path, write: Any) -> Extracted:
    check_writable(target)
    made = pipeline.run(source, items)
    if len(items) and not made.kept.any():
        raise InputError(f"{target.stem}: none of the {len(items)} patches could be decoded; {made.failed[0]}")
    begin = time.perf_counter()
    with atomic_write(target) as temporary:
        write(temporary, made.rows, made.kept)
    seconds = time.perf_counter() - begin
    balance = made.balance + Balance(seconds=seconds, writing=seconds)
    return Extracted(target, int(made.kept.sum()), made.failed, balance)


def _kept_rows(rows: np.ndarray, kept: np.ndarray, about: Mapping[str, Any]) -> FeatureRows:
    """Rows of the patches that could be decoded, block by block."""
    blocks = (rows[at : at + 4096][kept[at : at + 4096]] for at in range(0, len(rows), 4096))
    return FeatureRows((int(kept.sum()), rows.shape[1]), rows.dtype, blocks, about)


def _attributes(encoder: Mapping[str, str], name: str, target: Path, kept: np.ndarray) -> dict[str, Any]:
    folder = target.absolute().parent
    return {
        "name": name,
        "savetodir": f"{folder.parent.name}/{folder.name}",  # without the place of the job, so that a moved job has the same bytes
        **encoder,
        "masked": int((~kept).sum()),
    }

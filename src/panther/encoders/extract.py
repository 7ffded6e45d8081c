"""From the patches of a slide, or tile images, to one bag, written whole or not at all."""

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from panther.encoders.pipeline import Balance, ExtractSettings, Pipeline
from panther.encoders.sources import SlidePatches, Source, TileFolder, holds_tiles
from panther.errors import InputError
from panther.storage.readers import Held
from panther.storage.trident import Coords, FeatureRows, write_bag
from panther.store import atomic_write, check_writable, hash_of
from panther.types import Bag

if TYPE_CHECKING:
    from panther.encoders._base import Encoder
    from panther.slides import Slide, Tissue, TissueSettings


@dataclass(frozen=True)
class Extracted:
    """What became of a slide's patches."""

    path: Path
    patches: int  # rows written
    failed: Mapping[int, str] = field(default_factory=dict)  # position among the items -> why; left out of the bag
    balance: Balance = field(default_factory=Balance)


def extract(
    slide: "Slide | Path | str",
    encoder: "str | Encoder" = "lite0",
    *,
    size: int = 256,
    mpp: float = 0.5,
    overlap: int = 0,
    min_tissue: float = 0.25,
    tissue: "Tissue | TissueSettings | None" = None,
    slide_mpp: float | None = None,
    weights: Path | str | None = None,
    device: str = "cpu",
    workers: int = 1,
) -> Bag:
    """Features of one slide, in memory: find its tissue, lay patches over it and encode them; or those of a folder of tile images.

    Parameters
    ----------
    slide : Slide or path
        A slide file, a folder of DICOM files, or what `open_slide` returned; or a folder of tile images (searched in depth), which are
        encoded as they are, without coordinates.
    encoder : str or Encoder
        Name of `panther encoders`, `timm:NAME` or `module.path:factory`; or an encoder from `load_encoder`, to use it for several slides.
    size, mpp, overlap : int, float, int
        Pixels of a patch, their resolution in micrometres per pixel, and pixels that neighbours share.
    min_tissue : float
        Least part of a patch that is tissue.
    tissue : Tissue or TissueSettings, optional
        Where the tissue is, or how it is found.
    slide_mpp : float, optional
        Resolution of the slide, where its file does not say it or is wrong.
    weights : path, optional
        File of the encoder's weights.
    device : str
        Where to encode: `cpu`, `cuda`, `cuda:1`.
    workers : int
        Processes that decode patches: 1 is this process, 0 one per core.

    Returns
    -------
    Bag
        Features (N, d) as float16 with their coordinates; patches that cannot be decoded are left out.

    Examples
    --------
    >>> import panther
    >>> bag = panther.extract("slide.svs", "uni", device="cuda")  # doctest: +SKIP
    >>> embedding = panther.embed(bag, prototypes)  # doctest: +SKIP
    """
    from panther.encoders.loading import load_encoder
    from panther.slides import Tissue, find_tissue, grid, patch_spec

    if isinstance(encoder, str):
        encoder = load_encoder(encoder, None if weights is None else Path(weights), device=device)
    if isinstance(slide, (str, Path)) and holds_tiles(Path(slide)):
        tiles = TileFolder(Path(slide))
        features, _ = _in_memory(encoder, workers, tiles, tiles.names())
        return Bag(Path(slide).resolve().name, features, encoder=encoder.about.name)
    with _image(slide, slide_mpp) as image:
        spec = patch_spec(image, size, mpp, overlap)
        found = tissue if isinstance(tissue, Tissue) else find_tissue(image, tissue)
        coords = grid(image, spec, found, min_tissue)
        known = replace(spec, size_read=None, level=None, mpp_level0=image.mpp)  # as a file of features has it
        source = SlidePatches(image.path, image.mpp_override, spec)
    features, kept = _in_memory(encoder, workers, source, coords)
    return Bag(image.name, features, Held(torch.from_numpy(coords[kept])), known, encoder.about.name)


def _in_memory(encoder: "Encoder", workers: int, source: Source, items: Any) -> tuple[torch.Tensor, np.ndarray]:
    """Features of those items that can be decoded, and which these are."""
    with Pipeline(encoder, ExtractSettings(workers=workers)) as pipeline:
        made = pipeline.run(source, items)
    return torch.from_numpy(made.rows[made.kept]), np.flatnonzero(made.kept)


def _image(slide: "Slide | Path | str", slide_mpp: float | None) -> "AbstractContextManager[Slide]":
    """The slide, opened and closed again where it is a file."""
    from panther.slides import Slide, open_slide
    from panther.slides.resolution import advising

    if isinstance(slide, Slide):
        return nullcontext(slide)
    with advising("slide_mpp"):
        return open_slide(slide, slide_mpp)


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

"""From the patches of a slide, or tile images, to one bag: resumable, whole or not at all."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from panther.content import hash_of
from panther.encoders.pipeline import Balance, ExtractSettings, Pipeline, failures_in
from panther.encoders.sources import SlidePatches, Source, TileFolder
from panther.errors import InputError
from panther.storage.atomic import atomic_write, check_writable
from panther.storage.row_log import RowLog
from panther.storage.working import remove_working_folder

if TYPE_CHECKING:
    from panther.encoders._base import Encoder
    from panther.slides import Slide
    from panther.types import PatchSpec

__all__ = ["ExtractSettings", "Extracted", "encode_tiles", "extract", "partial_folder"]


@dataclass(frozen=True)
class Extracted:
    """What became of a slide's patches."""

    path: Path
    patches: int  # rows written
    failed: Mapping[int, str] = field(
        default_factory=dict
    )  # position among the items -> why; left out of features and coords
    resumed: int = 0  # patches that an earlier run had encoded
    balance: Balance = field(default_factory=Balance)

    @property
    def note(self) -> str | None:
        """Sentence about patches that are left out, None where there are none."""
        if not self.failed:
            return None
        first = next(iter(self.failed.values()))
        total = self.patches + len(self.failed)
        return f"{self.path.stem}: {len(self.failed)} of {total} patches could not be decoded and were left out, e.g. {first}"


def extract(
    slide: "Slide",
    coords: np.ndarray,
    spec: "PatchSpec",
    pipeline: "Pipeline | Encoder",
    target: Path,
    attributes: Mapping[str, Any] | None = None,
    key: str = "",
) -> Extracted:
    """Encode the patches at ``coords`` (N, 2) of a slide into a TRIDENT bag at ``target``.

    A killed run goes on where it was, and the file has the same bytes as without the kill. ``attributes`` are those of
    `coords`, ``key`` is kept with the features: whoever asked knows them again. Several slides are encoded with one `Pipeline`; for a
    single one an `Encoder` will do.
    """
    if not isinstance(pipeline, Pipeline):
        with Pipeline(pipeline) as one:
            return extract(slide, coords, spec, one, target, attributes, key)
    if spec.level is None and spec.size and spec.size_level0:  # TRIDENT's files do not say
        spec = replace(spec, level=slide.best_level(spec.size_level0 / spec.size))
    source = SlidePatches(slide.path, slide._override, spec)
    coords = np.asarray(coords, np.int64).reshape(-1, 2)

    def write(path: Path, rows: np.ndarray, kept: np.ndarray) -> None:
        about = _attributes(pipeline, slide.name, target, kept) | ({"key": key} if key else {})
        _write_bag(path, rows, kept, about, coords=(coords[kept], attributes or {}))

    return _extract(pipeline, source, coords, _print_of(slide.path), target, write)


def encode_tiles(folder: Path, pipeline: "Pipeline | Encoder", target: Path) -> tuple[Extracted, list[str]]:
    """Encode the tile images of a folder into one bag without coordinates; the names of the tiles are kept in `tiles`."""
    if not isinstance(pipeline, Pipeline):
        with Pipeline(pipeline) as one:
            return encode_tiles(folder, one, target)
    source = TileFolder(folder)
    names = source.names()
    stamps = [(folder / name).stat() for name in names]
    state = [(name, stat.st_size, stat.st_mtime_ns) for name, stat in zip(names, stamps, strict=True)]

    def write(path: Path, rows: np.ndarray, kept: np.ndarray) -> None:
        about = _attributes(pipeline, target.stem, target, kept)
        _write_bag(path, rows, kept, about, tiles=[names[i] for i in np.flatnonzero(kept)])

    return _extract(pipeline, source, names, hash_of(state), target, write), names


def partial_folder(target: Path) -> Path:
    """Where the rows of an unfinished bag are."""
    return target.parent / f".{target.stem}.partial"


def _extract(pipeline: Pipeline, source: Source, items: Any, state: str, target: Path, write: Any) -> Extracted:
    check_writable(target)
    content = items.tobytes().hex() if isinstance(items, np.ndarray) else list(items)
    # a dataclass of plain values: its text says all that the pixels depend on
    key = hash_of([pipeline.key, repr(pipeline.fit), repr(source), state, content])
    log = RowLog(partial_folder(target), key, pipeline.encoder.about.dim, pipeline.dtype)
    try:
        resumed = log.whole()
        balance = pipeline.run(source, items, log)
        failed = failures_in(log)
        kept = np.ones(len(items), bool)
        kept[list(failed)] = False
        if len(items) and not kept.any():
            raise InputError(f"{target.stem}: none of the {len(items)} patches could be decoded; {failed[0]}")
        with atomic_write(target) as temporary:
            write(temporary, log.rows(range(len(items)), len(items)), kept)
    finally:
        log.close()
    remove_working_folder(partial_folder(target))
    return Extracted(target, int(kept.sum()), failed, resumed, balance)


def _write_bag(
    path: Path,
    rows: np.ndarray,
    kept: np.ndarray,
    about: Mapping[str, Any],
    coords: tuple[np.ndarray, Mapping[str, Any]] | None = None,
    tiles: list[str] | None = None,
) -> None:
    """TRIDENT's layout, contiguous: `features` (n, d), then `coords` (n, 2) or the names of `tiles`."""
    import h5py

    count = int(kept.sum())
    with h5py.File(path, "w") as file:
        features = file.create_dataset("features", (count, rows.shape[1]), rows.dtype)
        features.attrs.update(about)
        start = 0
        for first in range(0, len(rows), 4096):
            block = rows[first : first + 4096][kept[first : first + 4096]]
            features[start : start + len(block)] = block
            start += len(block)
        if coords is not None:
            places = file.create_dataset("coords", data=coords[0])
            places.attrs.update(coords[1])
        if tiles is not None:
            file.create_dataset("tiles", data=tiles, dtype=h5py.string_dtype())


def _attributes(pipeline: Pipeline, name: str, target: Path, kept: np.ndarray) -> dict[str, Any]:
    encoder, folder = pipeline.encoder, target.absolute().parent
    return {
        "name": name,
        "savetodir": f"{folder.parent.name}/{folder.name}",  # without the place of the job, so that a moved job has the same bytes
        "encoder": encoder.about.name,
        "weights": encoder.weights,
        "precision": encoder.precision.name,
        "masked": int((~kept).sum()),
    }


def _print_of(path: Path) -> str:
    """Size and time of the file, or of all files of a folder (DICOM), the latter without their places."""
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    return hash_of([(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files])

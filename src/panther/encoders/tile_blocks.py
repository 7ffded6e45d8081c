"""The tiles of one folder in blocks, for workers of a cluster; the file is the one that a single process writes."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from panther.encoders.extract import Extracted, write_tiles
from panther.encoders.pipeline import ExtractSettings, Pipeline
from panther.encoders.sources import TileFolder
from panther.encoders.step import EncoderChoice
from panther.engine import Work, map_all
from panther.errors import InputError
from panther.storage.atomic import check_writable

BLOCK = 2048  # tiles of one task, or a few more


class TileBlock(NamedTuple):
    """Tiles that are encoded together."""

    sample: str  # what to call them
    names: tuple[str, ...] = ()


class EncodedTiles(NamedTuple):
    """Features of some tiles."""

    rows: np.ndarray  # (n, dim); zero where a tile could not be decoded
    failed: Mapping[int, str]  # position among them -> why
    encoder: Mapping[str, str]  # name, weights and precision, for the file


@dataclass
class TileEncoder:
    """Encodes tiles; it is sent to workers, and loads the encoder once in each of them."""

    folder: Path
    choice: EncoderChoice
    settings: ExtractSettings

    def __post_init__(self) -> None:
        self._pipeline: list[
            Pipeline
        ] = []  # one, once it is needed; no field, because it is not what the work depends on

    def __call__(self, block: TileBlock) -> EncodedTiles:
        """Features of these tiles; without any, only what the encoder is."""
        pipeline, names = self._opened(), block.names
        made = pipeline.run(TileFolder(self.folder), names)
        return EncodedTiles(made.rows, made.failed, pipeline.encoder.public())

    def close(self) -> None:
        """End the decoding processes."""
        while self._pipeline:
            self._pipeline.pop().close()

    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self.folder, "choice": self.choice, "settings": self.settings}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**{**state, "choice": state["choice"].spread()})  # type: ignore[misc]

    def _opened(self) -> Pipeline:
        if not self._pipeline:
            self._pipeline.append(Pipeline(self.choice.load(self.choice.devices[0]), self.settings))
        return self._pipeline[0]


def encode_blocks(
    folder: Path, choice: EncoderChoice, settings: ExtractSettings, target: Path, work: Work
) -> tuple[Extracted, list[str]]:
    """Encode the tile images of a folder into one bag, as `encode_tiles` does, block by block wherever ``work`` says."""
    names = TileFolder(folder).names()
    check_writable(target)
    batch = settings.batch or 2  # a core's share of a batch: blocks begin where batches do, or their bytes would differ
    size = -(-BLOCK // batch) * batch
    starts = range(0, len(names), size)
    blocks = {at: TileBlock(f"tiles from {names[at]} on", tuple(names[at : at + size])) for at in starts}
    encode = TileEncoder(folder, choice, settings)
    with closing(encode):
        about = map_all(encode, [TileBlock("the encoder")], "loading the encoder", work)[0].encoder
        found = map_all(encode, list(blocks.values()), "encoding", work)
    rows = np.concatenate([one.rows for one in found])
    failed = {at + row: why for at, one in zip(starts, found, strict=True) for row, why in sorted(one.failed.items())}
    kept_rows = np.ones(len(names), bool)
    kept_rows[list(failed)] = False
    if not kept_rows.any():
        raise InputError(f"{target.stem}: none of the {len(names)} tiles could be decoded; {failed[0]}")
    write_tiles(target, rows, kept_rows, about, names)
    return Extracted(target, int(kept_rows.sum()), failed), names

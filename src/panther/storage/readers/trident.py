"""TRIDENT: `features` (N, d) with the encoder's name, `coords` at level 0 with the patch geometry as attributes."""

from typing import Any

from panther.storage.readers._base import Candidate, readers
from panther.storage.readers._h5 import dataset, described, h5_bag, text
from panther.types import Bag, PatchSpec


@readers.register("trident")
def trident(file: Candidate) -> Bag | None:
    """Read TRIDENT's layout; the attributes tell it from CLAM's."""
    features = dataset(file.h5, "features")
    if features is None or features.ndim == 3 or not described(file.h5):
        return None
    geometry = dict(file.h5["coords"].attrs) if "coords" in file.h5 else {}
    return h5_bag(file, "features", _spec(geometry), text(features.attrs.get("encoder")))


def _spec(geometry: dict[str, Any]) -> PatchSpec:
    magnification = float(geometry.get("target_magnification", 0) or 0)
    return PatchSpec(
        mpp=10.0 / magnification if magnification > 0 else None,  # 20x is 0.5 um/px
        size=_whole(geometry.get("patch_size")),
        size_level0=_whole(geometry.get("patch_size_level0")),
        overlap=_whole(geometry.get("overlap")) or 0,
    )


def _whole(value: Any) -> int | None:
    return None if value is None else int(value)

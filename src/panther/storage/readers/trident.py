"""TRIDENT: `features` (N, d) with the encoder's name, `coords` at level 0 with the patch geometry as attributes."""

import json
from typing import Any

from panther.storage.readers._base import FileContent, readers
from panther.storage.readers._h5 import described, h5_bag, text
from panther.types import Bag, PatchSpec

OURS = {
    "weights",
    "written_by",
}  # attributes of features that `panther slides` and `panther convert` write, and TRIDENT does not


@readers.register("trident")
def trident(file: FileContent) -> Bag | None:
    """Read TRIDENT's layout; the attributes tell it from CLAM's."""
    features = file.dataset("features")
    if features is None or features.ndim == 3 or not described(file):
        return None
    return h5_bag(file, "features", _spec(dict(file.geometry)), _encoder(dict(features.attrs)))


def _encoder(about: dict[str, Any]) -> str | None:
    """Encoder's name; what TRIDENT itself calls ctranspath has the weights of CHIEF."""
    name = text(about.get("encoder"))
    return "chief-ctranspath" if name == "ctranspath" and not OURS & set(about) else name


def _spec(geometry: dict[str, Any]) -> PatchSpec:
    exact = json.loads(text(geometry.get("panther")) or "{}")  # of `panther slides`: magnifications are rounded
    size, size_level0 = _whole(geometry.get("patch_size")), _whole(geometry.get("patch_size_level0"))
    mpp = _mpp(geometry.get("target_magnification"))
    mpp_level0 = _mpp(geometry.get("level0_magnification"))
    if mpp is None and mpp_level0 and size and size_level0:
        mpp = mpp_level0 * size_level0 / size
    return PatchSpec(
        mpp=exact.get("mpp") or mpp,
        size=size,
        size_level0=size_level0,
        overlap=_whole(geometry.get("overlap")) or 0,
        mpp_level0=exact.get("level0_mpp"),
    )


def _mpp(magnification: Any) -> float | None:
    """20x is 0.5 um/px."""
    return 10.0 / float(magnification) if magnification and float(magnification) > 0 else None


def _whole(value: Any) -> int | None:
    return None if value is None else int(value)

"""PANTHER's published data: `features` (1, N, d), perhaps `coords` (N, 2) or (1, N, 2)."""

from panther.storage.readers._base import FileContent, readers
from panther.storage.readers._h5 import h5_bag
from panther.types import Bag, PatchSpec


@readers.register("batched")
def batched(file: FileContent) -> Bag | None:
    """Read features with a leading dimension of one."""
    features = file.dataset("features")
    if features is None or features.ndim != 3:
        return None
    return h5_bag(file, "features", PatchSpec(), None)

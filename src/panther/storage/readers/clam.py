"""CLAM (and others): `features` (N, d), perhaps `coords`, no attributes."""

from panther.storage.readers._base import FileContent, readers
from panther.storage.readers._h5 import dataset, described, h5_bag
from panther.types import Bag, PatchSpec


@readers.register("clam")
def clam(file: FileContent) -> Bag | None:
    """Read the plain layout."""
    features = dataset(file.h5, "features")
    if features is None or features.ndim == 3 or described(file.h5):
        return None
    return h5_bag(file, "features", PatchSpec(), None)

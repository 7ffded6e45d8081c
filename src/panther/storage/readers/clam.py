"""CLAM (and others): `features` (N, d), perhaps `coords`, no attributes."""

from panther.storage.readers._base import FileContent, readers
from panther.storage.readers._h5 import described, h5_bag
from panther.types import Bag, PatchSpec


@readers.register("clam")
def clam(file: FileContent) -> Bag | None:
    """Read the plain layout."""
    features = file.dataset("features")
    if features is None or features.ndim == 3 or described(file):
        return None
    return h5_bag(file, "features", PatchSpec(), None)

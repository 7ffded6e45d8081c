"""CLAM (and others): `features` (N, d), perhaps `coords`, no attributes."""

from panther.storage.readers._base import Candidate, readers
from panther.storage.readers._h5 import described, h5_bag
from panther.types import Bag, PatchSpec


@readers.register("clam")
def clam(file: Candidate) -> Bag | None:
    """Read the plain layout."""
    if file.h5 is None or "features" not in file.h5 or file.h5["features"].ndim == 3 or described(file.h5):
        return None
    return h5_bag(file, "features", PatchSpec(), None)

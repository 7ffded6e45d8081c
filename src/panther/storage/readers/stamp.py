"""STAMP: `feats` (N, d) and `coords` in micrometres; newer files say so in root attributes."""

from panther.storage.readers._base import FileContent, readers
from panther.storage.readers._h5 import h5_bag, text
from panther.types import Bag, PatchSpec


@readers.register("stamp")
def stamp(file: FileContent) -> Bag | None:
    """Read STAMP's layout."""
    if file.dataset("feats") is None:
        return None
    about = file.h5.attrs
    micrometres, pixels = about.get("tile_size_um"), about.get("tile_size_px")
    spec = PatchSpec(
        mpp=float(micrometres) / float(pixels) if micrometres and pixels else None,
        size=int(pixels) if pixels else None,
        coords_unit="um",
    )
    return h5_bag(file, "feats", spec, text(about.get("extractor")))

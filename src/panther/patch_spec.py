"""How large a patch is and how large its pixels are, and whether two sets of patches can be put together."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

# Resolutions are nominal numbers, rounded by every tool in its own way: 0.499 is 0.5, 0.44 is not.
TOLERANCE = 0.05


@dataclass(frozen=True)
class PatchSpec:
    """Size of a patch, in the three units that are so easily confused; None is "the file does not say"."""

    mpp: float | None = None  # target resolution, micrometres per pixel
    size: int | None = None  # pixels at the target resolution (what the encoder sees)
    size_read: int | None = None  # pixels read from `level` before resizing
    size_level0: int | None = None  # pixels at level 0 (what `coords` count in)
    level: int | None = None
    overlap: int = 0  # pixels at the target resolution
    coords_unit: str = "px"  # "px" at level 0, or "um" (STAMP)
    mpp_level0: float | None = None  # of the slide, as it was known when the patches were cut; only where it is exact

    @property
    def side(self) -> float | None:
        """Side of a patch in micrometres: what an encoder, which brings every patch to its own size, gets to see."""
        return self.mpp * self.size if self.mpp and self.size else None

    @property
    def scale(self) -> "PatchSpec":
        """The part that features, prototypes and models have in common: resolution and size."""
        return PatchSpec(self.mpp, self.size)

    def agrees(self, other: "PatchSpec") -> bool:
        """Whether patches are alike: as large in micrometres, or where a size is not known, of one resolution; unknown passes."""
        ours, theirs = (self.side, other.side) if self.side and other.side else (self.mpp, other.mpp)
        return not ours or not theirs or abs(ours - theirs) <= TOLERANCE * max(ours, theirs)

    def words(self) -> str:
        """Resolution for a message."""
        if not self.mpp:
            return "of unknown resolution"
        if not self.size or self.side is None:
            return f"at {self.mpp:.4g} um/px"
        return f"of {self.size} px at {self.mpp:.4g} um/px ({self.side:.4g} um)"

    def known(self) -> dict[str, Any]:
        """What is known, as plain values."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def spec_from(values: Mapping[str, Any] | None) -> PatchSpec:
    """Spec of plain values."""
    names = {field.name for field in fields(PatchSpec)}
    return PatchSpec(**{name: value for name, value in (values or {}).items() if name in names})


def in_common(specs: "list[PatchSpec]") -> PatchSpec:
    """Scale of patches that are put together: that of the first that names it, unknown where they disagree."""
    known = [spec.scale for spec in specs if spec.mpp]
    first = max(known, key=lambda spec: spec.side is not None, default=PatchSpec())
    return first if all(first.agrees(spec) for spec in known) else PatchSpec()

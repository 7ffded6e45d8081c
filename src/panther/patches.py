"""Encoder, resolution and size of patches, which must agree, and their positions on the slide."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from panther.errors import InputError

# Names of encoders here, and those of TRIDENT, STAMP, CLAM, timm and the Hugging Face hub.
# Names are compared in small letters, `_` as `-`, and without the prefixes below. Networks of one name with different numbers of features
# (ResNet-50 with or without its last block; Virchow's class token with or without the mean of the patches) are distinguished by that number,
# which is always compared too.
ALIASES: dict[str, tuple[str, ...]] = {
    "lite0": ("efficientnet-lite0", "tf-efficientnet-lite0", "tf-efficientnet-lite0.in1k"),
    "resnet50": ("resnet50-trunc", "resnet50.tv-in1k", "timm/resnet50.tv-in1k", "resnet50-baseline", "resnet-50"),
    "uni": ("uni-v1", "uni1", "mahmood-uni", "mahmoodlab/uni"),
    "uni2": ("uni-v2", "uni2-h", "uni-2", "mahmood-uni2", "mahmoodlab/uni2-h"),
    "conch": ("conch-v1", "conch1", "mahmood-conch", "mahmoodlab/conch", "conch-vit-b-16"),
    "conch-v1.5": ("conch-v15", "conch1-5", "conchv1-5", "conch15", "mahmood-conch1-5", "mahmoodlab/conchv1-5"),
    "ctranspath": ("transpath", "xiyue-wang/transpath"),
    "chief-ctranspath": ("ctranspath-chief", "chief"),
    "virchow": ("virchow-full", "virchow-v1", "virchow1", "paige-ai/virchow"),
    "virchow2": ("virchow-v2", "virchow2-full", "virchow2-cls", "paige-ai/virchow2"),
    "gigapath": ("prov-gigapath", "prov-gigapath/prov-gigapath"),
    "h-optimus-0": ("hoptimus0", "hoptimus-0", "h-optimus0", "bioptimus/h-optimus-0"),
    "h-optimus-1": ("hoptimus1", "hoptimus-1", "h-optimus1", "bioptimus/h-optimus-1"),
    "h0-mini": ("h0mini", "h-optimus-0-mini", "bioptimus/h0-mini"),
    "phikon": ("phikon-v1", "owkin/phikon"),
    "phikon-v2": ("phikonv2", "phikon2", "owkin/phikon-v2"),
    "musk": ("xiangjx/musk",),
    "hibou-l": ("histai/hibou-l",),
    "hibou-b": ("histai/hibou-b",),
    "midnight": ("midnight12k", "midnight-12k", "kaiko-ai/midnight"),
    "lunit-vits8": ("1aurent/vit-small-patch8-224.lunit-dino", "vit-small-patch8-224.lunit-dino"),
    "kaiko-vits8": ("1aurent/vit-small-patch8-224.kaiko-ai-towards-large-pathology-fms",),
    "kaiko-vits16": ("1aurent/vit-small-patch16-224.kaiko-ai-towards-large-pathology-fms",),
    "kaiko-vitb8": ("1aurent/vit-base-patch8-224.kaiko-ai-towards-large-pathology-fms",),
    "kaiko-vitb16": ("1aurent/vit-base-patch16-224.kaiko-ai-towards-large-pathology-fms",),
    "kaiko-vitl14": ("1aurent/vit-large-patch14-reg4-224.kaiko-ai-towards-large-pathology-fms",),
    "keep": ("astaxanthin/keep",),
    "mstar": ("wangyihui/mstar",),
    "plip": ("vinid/plip",),
    "dino-bloom": ("dinobloom", "1aurent/dinobloom"),
    **{
        f"dinov2-{size}{registers}": (
            f"vit-{size}-patch14-{reg4}dinov2.lvd142m",
            f"timm/vit-{size}-patch14-{reg4}dinov2.lvd142m",
            f"facebook/dinov2-{'with-registers-' if registers else ''}{size}",
            f"dinov2-vit{size[0]}14{registers}",
        )
        for size in ("small", "base", "large", "giant")
        for registers, reg4 in (("", ""), ("-reg", "reg4-"))
    },
}

_PREFIXES = ("https://huggingface.co/", "hf-hub:", "timm:")
_STAMP_HASH = re.compile(r"-[0-9a-f]{8}$")  # STAMP's folders: the extractor's name with a hash of its code
_NAMES = {alias: name for name, aliases in ALIASES.items() for alias in (name, *aliases)}


def canonical(name: str) -> str:
    """Name of an encoder here; an unknown name in small letters with `-` for `_`.

    >>> canonical("uni_v1"), canonical("hf-hub:MahmoodLab/UNI"), canonical("mahmood-uni-1a2b3c4d")
    ('uni', 'uni', 'uni')
    """
    name, plus, stain = name.partition("+")  # patches whose stains were normalised first give other features
    plain = name.strip().casefold().replace("_", "-")
    for prefix in _PREFIXES:
        plain = plain.removeprefix(prefix)
    known = _NAMES.get(plain) or _NAMES.get(_STAMP_HASH.sub("", plain)) or plain
    return f"{known}{plus}{stain.strip().casefold()}"


def encoder_words(name: str | None) -> str:
    """Description of an encoder for messages."""
    return f"the encoder {name!r}" if name else "an encoder that is not named"


def same_encoder(one: str | None, other: str | None) -> bool:
    """Whether two names may be of one encoder; a missing name matches any."""
    return not one or not other or canonical(one) == canonical(other)


# Resolutions are nominal numbers, rounded by every tool in its own way: 0.499 is 0.5, 0.44 is not.
TOLERANCE = 0.05


@dataclass(frozen=True)
class PatchSpec:
    """Size of a patch, in the three units that are so easily confused; None: unknown."""

    mpp: float | None = None  # target resolution, micrometres per pixel
    size: int | None = None  # pixels at the target resolution (what the encoder sees)
    size_read: int | None = None  # pixels read from `level` before resizing
    size_level0: int | None = None  # pixels at level 0 (what `coords` count in)
    level: int | None = None
    overlap: int = 0  # pixels at the target resolution
    coords_unit: str = "px"  # "px" at level 0, or "um" (STAMP)
    mpp_level0: float | None = None  # of the slide when the patches were cut; only if it is exact

    @property
    def side(self) -> float | None:
        """Side of a patch in micrometres: encoders resize patches, so this is the tissue that they see."""
        return self.mpp * self.size if self.mpp and self.size else None

    @property
    def scale(self) -> "PatchSpec":
        """Resolution and size, the part that features, prototypes and models share."""
        return PatchSpec(self.mpp, self.size)

    def agrees(self, other: "PatchSpec") -> bool:
        """Whether patches have the same side in micrometres or, if a size is unknown, the same resolution; unknown ones agree."""
        first, second = (self.side, other.side) if self.side and other.side else (self.mpp, other.mpp)
        return not first or not second or abs(first - second) <= TOLERANCE * max(first, second)

    def words(self) -> str:
        """Resolution for a message."""
        if not self.mpp:
            return "of unknown resolution"
        if not self.size or self.side is None:
            return f"at {self.mpp:.4g} um/px"
        return f"of {self.size} px at {self.mpp:.4g} um/px ({self.side:.4g} um)"

    def known(self) -> dict[str, Any]:
        """Known fields as plain values."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def spec_from(values: Mapping[str, Any] | None) -> PatchSpec:
    """Spec from plain values."""
    names = {field.name for field in fields(PatchSpec)}
    return PatchSpec(**{name: value for name, value in (values or {}).items() if name in names})


def in_common(specs: "list[PatchSpec]") -> PatchSpec:
    """Common scale of patches: that of the first with a known scale, unknown if they disagree."""
    known = [spec.scale for spec in specs if spec.mpp]
    first = max(known, key=lambda spec: spec.side is not None, default=PatchSpec())
    return first if all(first.agrees(spec) for spec in known) else PatchSpec()


@dataclass(frozen=True, eq=False)
class Places:
    """Positions of the patches of a slide, or of all slides of a patient."""

    coords: np.ndarray  # (N, 2), upper left corners
    step: float  # distance of adjacent patches, in the same unit
    lengths: tuple[int, ...]  # patches of each slide: patches of different slides are never adjacent
    inferred: bool = False  # the step was estimated from the coordinates, no file states it

    def slides(self) -> list[np.ndarray]:
        """Corners of each slide's patches."""
        return np.split(self.coords, np.cumsum(self.lengths)[:-1])


def places_of(coords: np.ndarray, spec: PatchSpec, source: str) -> Places:
    """Positions of one slide's patches; messages name ``source``."""
    points = np.asarray(coords, np.float64).reshape(-1, 2)
    if not np.isfinite(points).all():
        raise InputError(f"{source}: the coordinates hold NaN or infinite numbers; extract the patches again.")
    try:
        step, inferred = neighbour_step(points, spec)
    except InputError as error:
        raise InputError(f"{source}: {error}") from error
    return Places(points, step, (len(points),), inferred)


def joined_places(parts: Sequence[Places]) -> Places:
    """Concatenated positions of several slides; if their steps differ, coordinates are divided by them."""
    lengths = tuple(length for part in parts for length in part.lengths)
    inferred = any(part.inferred for part in parts)
    if len({part.step for part in parts}) == 1:
        return Places(np.concatenate([part.coords for part in parts]), parts[0].step, lengths, inferred)
    return Places(np.concatenate([part.coords / part.step for part in parts]), 1.0, lengths, inferred)


STEP_TOLERANCE = 2.0  # level-0 pixels: tools round a step with overlap in different ways


def stated_side(spec: PatchSpec) -> float | None:
    """Side of a patch in the unit of the coordinates; None if unknown."""
    return spec.side if spec.coords_unit == "um" else spec.size_level0


def stated_step(spec: PatchSpec) -> float | None:
    """Distance of adjacent patches (side less overlap) in the unit of the coordinates; None if unknown."""
    side = stated_side(spec)
    if side is None or not spec.overlap or not spec.size:
        return None if side is None else float(side)
    step = side - spec.overlap * side / spec.size
    return max(step, 1e-9) if spec.coords_unit == "um" else float(max(1, side - math.floor(side - step + 0.5)))


def shown_step(points: np.ndarray, stated: float | None) -> float:
    """Step of the grid: the stated one, corrected by the observed distances; without it, the most frequent distance."""
    if stated is not None and _one_after_the_other(points, stated):
        return float(stated)
    gaps = row_gaps(points)
    if stated is not None:
        close = gaps[np.abs(gaps - stated) <= STEP_TOLERANCE]
        return commonest(close) if len(close) and not (close == stated).any() else float(stated)
    if not len(gaps):
        raise InputError(
            "the size of patches is unknown and no two of them are in one row; extract them again with `panther slides`"
        )
    return commonest(gaps)


def neighbour_step(points: np.ndarray, spec: PatchSpec) -> tuple[float, bool]:
    """Distance of adjacent patches, also of patches with gaps between them, and whether it was estimated from the coordinates."""
    stated = stated_step(spec)
    if len(points) < 2:
        return stated or 1.0, False  # no distances
    if stated is not None and not _one_after_the_other(points, stated):
        gaps = row_gaps(points)
        if len(gaps) and gaps.min() > stated + STEP_TOLERANCE:
            return commonest(gaps), True
    return shown_step(points, stated), stated is None


def row_gaps(points: np.ndarray) -> np.ndarray:
    """Distances of neighbours within the same row or the same column."""
    parts = []
    for along, across in ((0, 1), (1, 0)):
        ordered = points[np.lexsort((points[:, along], points[:, across]))]
        same = ordered[1:, across] == ordered[:-1, across]
        parts.append((ordered[1:, along] - ordered[:-1, along])[same])
    gaps = np.concatenate(parts)
    return gaps[gaps > 0]


def commonest(values: np.ndarray) -> float:
    """Most frequent value, the smallest of several."""
    levels, counts = np.unique(values, return_counts=True)
    return float(levels[counts.argmax()])


def _one_after_the_other(points: np.ndarray, step: float) -> bool:
    """Whether two successive patches of the file have exactly that distance: usual, and faster than sorting."""
    apart = np.abs(np.diff(points, axis=0))
    return bool(((apart.min(1) == 0) & (apart.max(1) == step)).any()) if len(apart) else False

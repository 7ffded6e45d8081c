"""Micrometres per pixel: the file's, checked, or the user's; never a silent guess."""

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from panther.errors import InputError, listed
from panther.storage.names import composed
from panther.storage.tables import as_table, with_points

LOWEST, HIGHEST = 0.05, 5.0  # um/px, from oil immersion to a macro camera
ANISOTROPY = 0.02  # largest relative difference of the two axes
AGREES = 0.02  # largest relative difference at which the user's value and the file's are the same
OVERRIDE = (
    "give the true value: `slide_mpp=0.25` (`mpp` of `open_slide`), or a `slide_mpp_table=` with columns wsi, mpp"
)
POWERS = ("openslide.objective-power", "aperio.AppMag")  # the first is OpenSlide's for every scanner

_MICROMETRES = {"inch": 25400.0, "centimeter": 10000.0, "2": 25400.0, "3": 10000.0}
_TO_MICROMETRES = {"µm": 1.0, "um": 1.0, "μm": 1.0, "nm": 1e-3, "mm": 1e3, "cm": 1e4, "": 1.0}


@dataclass(frozen=True)
class Resolution:
    """Resolution of level 0, and its source."""

    mpp: float  # micrometres per pixel
    source: str  # the tag, or "override"
    note: str = ""  # a doubt about the value


def resolve_mpp(properties: Mapping[str, str], override: float | None = None) -> Resolution:
    """Resolution of a slide with these properties (OpenSlide's names): that of the first tag in `SOURCES` that is present.

    An implausible tag refuses the slide: the other tags of a wrong file are not trusted either.
    """
    if override is not None:
        if not _plausible(override):
            raise InputError(f"mpp: {override:g} um/px is not plausible, expected {LOWEST:g} to {HIGHEST:g}")
        note = ""
        with suppress(InputError):  # the file has no plausible value
            written = resolve_mpp(properties)
            if abs(written.mpp - override) > AGREES * written.mpp:
                note = f"the file says {written.mpp:g} um/px ({written.source}), {override:g} was requested and used"
        return Resolution(float(override), "override", note)
    power = next((value for name in POWERS if (value := _number(properties.get(name))) is not None), None)
    for source, read in SOURCES.items():
        if (pair := read(properties)) is not None:
            return _checked(source, pair, power)
    if power is None:
        raise InputError(f"the file has no resolution (um/px); {OVERRIDE}")
    note = f"resolution 10/{power:g} = {10 / power:g} um/px was taken from the objective's power, the file has no other"
    return _checked("objective power", (10 / power, 10 / power), None, note)


def read_mpp_table(path: Path) -> dict[str, float]:
    """Read a table with the columns `wsi` (file name) and `mpp`; rows without mpp are left out."""
    rows = as_table(path)
    if not {"wsi", "mpp"} <= set(rows.columns):
        raise InputError(f"{path}: found columns {listed(rows.columns)}, expected wsi and mpp")
    table: dict[str, float] = {}
    numbers = with_points(rows["mpp"], "mpp", str(path)).str.strip()
    for name, text in zip(rows["wsi"].str.strip().map(composed), numbers, strict=True):
        if not name or not text:
            continue
        if (value := _number(text)) is None or not _plausible(value):
            raise InputError(f"{path}: mpp of {name} is {text!r}, expected {LOWEST:g} to {HIGHEST:g} um/px")
        if table.setdefault(name, value) != value:
            raise InputError(f"{path}: found {name} twice with different mpp ({table[name]:g} and {value:g})")
    return table


def _checked(source: str, pair: tuple[float, float], power: float | None, note: str = "") -> Resolution:
    x, y = pair
    if not (_plausible(x) and _plausible(y)):
        raise InputError(f"{source} says {x:g} x {y:g} um/px, which is not plausible; {OVERRIDE}")
    if abs(x - y) > ANISOTROPY * min(x, y):
        raise InputError(f"{source} says that pixels are not square ({x:g} x {y:g} um); {OVERRIDE}")
    mpp = (x + y) / 2
    if power is not None and not 0.5 <= mpp * power / 10 <= 2:
        note = f"{source} says {mpp:g} um/px, the objective's power {power:g}x would be about {10 / power:g}; check it"
    return Resolution(mpp, source, note)


def _plausible(mpp: float) -> bool:
    return math.isfinite(mpp) and LOWEST <= mpp <= HIGHEST


def _number(text: str | None) -> float | None:
    """Number of a tag; None for 0 and for words, which scanners write for "unknown"."""
    try:
        value = float((text or "").replace(",", "."))
    except ValueError:
        return None
    return value if math.isfinite(value) and value > 0 else None


def _pair(x: str, y: str | None = None) -> Callable[[Mapping[str, str]], tuple[float, float] | None]:
    def read(properties: Mapping[str, str]) -> tuple[float, float] | None:
        first, second = _number(properties.get(x)), _number(properties.get(y or x))
        return None if first is None or second is None else (first, second)

    return read


def _ome(properties: Mapping[str, str]) -> tuple[float, float] | None:
    pair = _pair("ome.PhysicalSizeX", "ome.PhysicalSizeY")(properties)
    scale = _TO_MICROMETRES.get(properties.get("ome.PhysicalSizeXUnit", ""))
    return None if pair is None or scale is None else (pair[0] * scale, pair[1] * scale)


def _tiff(properties: Mapping[str, str]) -> tuple[float, float] | None:
    """TIFF's pixels per unit; without a unit they are an aspect ratio."""
    unit = _MICROMETRES.get(properties.get("tiff.ResolutionUnit", ""))
    pair = _pair("tiff.XResolution", "tiff.YResolution")(properties)
    return None if unit is None or pair is None else (unit / pair[0], unit / pair[1])


SOURCES: dict[str, Callable[[Mapping[str, str]], tuple[float, float] | None]] = {
    "openslide.mpp": _pair("openslide.mpp-x", "openslide.mpp-y"),
    "aperio.MPP": _pair("aperio.MPP"),
    "OME PhysicalSize": _ome,
    "TIFF resolution": _tiff,
}

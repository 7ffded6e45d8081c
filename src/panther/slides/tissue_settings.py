"""How tissue is found: every number in micrometres, checked before the work."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from numbers import Real
from typing import Any

from panther.errors import InputError


@dataclass(frozen=True)
class TissueSettings:
    """How tissue is found; lengths in micrometres, areas in square micrometres."""

    method: str = "colour"
    mpp: float = 8.0  # resolution of the segmentation
    smooth: float = 4.0  # standard deviation of the blur that removes noise of the camera and of JPEG
    lowest: float = 0.04  # limits of Otsu's threshold, in optical density (chroma)
    highest: float = 0.10
    close: float = 24.0  # gaps up to twice this are bridged
    open: float = 6.0  # threads thinner than twice this are dropped
    min_area: float = 10_000.0  # smaller regions are dropped
    max_hole: float = 10_000.0  # smaller holes are filled: lumina, fat cells (about 8,000)
    min_artefact: float = 500_000.0  # black regions from this size on are ink or border, smaller ones pigment
    pen: bool = True  # look for ink; turn it off for green or blue stains

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            right, expected = EXPECTED.get(name, LENGTH)
            if not right(value):
                raise InputError(f"The tissue setting {name} is {value!r}; expected is {expected}.")
            if not isinstance(value, str | bool):  # 5000 and 5000.0 are one setting, whose hash must be one
                object.__setattr__(self, name, float(value))
        if self.lowest > self.highest:
            raise InputError(
                f"The tissue settings lowest={self.lowest:g} and highest={self.highest:g} are limits of one threshold; "
                "lowest must not exceed highest."
            )

    @classmethod
    def of(cls, method: str, values: Mapping[str, Any]) -> "TissueSettings":
        """Settings by name, as a user writes them; an unknown name is refused with the names that are known."""
        known = {field.name: field.default for field in fields(cls) if field.name != "method"}
        for name in values:
            if name not in known:
                names = ", ".join(f"{key}={json.dumps(default)}" for key, default in known.items())
                raise InputError(f"There is no tissue setting {name!r}; known are, with their defaults, {names}.")
        return cls(method, **values)

    @property
    def words(self) -> str:
        """The method and what differs from the defaults, for people."""
        usual = asdict(TissueSettings(self.method))
        changed = {name: value for name, value in asdict(self).items() if value != usual[name]}
        return " ".join([self.method, *(f"{k}={str(v).lower().removesuffix('.0')}" for k, v in changed.items())])


def _between(low: float, high: float) -> Callable[[Any], bool]:
    return lambda v: isinstance(v, Real) and not isinstance(v, bool) and math.isfinite(v) and low <= float(v) <= high


Expected = tuple[Callable[[Any], bool], str]
LENGTH: Expected = (_between(0, math.inf), "a number of um (areas: um2), 0 or more")
EXPECTED: dict[str, Expected] = {
    "method": (lambda v: isinstance(v, str), "a name"),
    "mpp": (_between(1, 64), "a resolution of 1 to 64 um/px"),
    "lowest": (_between(0, 2), "an optical density of 0 to 2"),
    "highest": (_between(0, 2), "an optical density of 0 to 2"),
    "pen": (lambda v: isinstance(v, bool), "true or false"),
}

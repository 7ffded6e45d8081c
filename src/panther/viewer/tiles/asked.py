"""What a request asks of an overlay, checked: everything else in its address is left alone."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from panther.errors import InputError
from panther.explain.names import prototype_number


@dataclass(frozen=True)
class Asked:
    """Parameters of an overlay; equal ones give equal tiles."""

    set: str | None = None  # of prototypes
    model: str | None = None
    prototype: int = 0
    shown: frozenset[int] | None = None  # prototypes or classes that are isolated; None: all
    low: float | None = None  # patches of smaller values are left out
    high: float | None = None
    scale: str | None = None  # of attention: rank or linear
    output: str | None = None  # of the model

    def keeps(self, value_low: float, value_high: float) -> tuple[float, float]:
        """Values that are shown, where they are not said those of the scale."""
        return (
            value_low if self.low is None else self.low,
            value_high if self.high is None else self.high,
        )


def read_asked(query: Mapping[str, str], count: int) -> Asked:
    """Parameters of a query, for so many prototypes."""
    chosen = query.get("prototype")
    shown = query.get("shown")
    return Asked(
        query.get("set") or None,
        query.get("model") or None,
        prototype_number(chosen, max(count, 1), "`prototype=`: ") if chosen else 0,
        None if shown is None else frozenset(_whole(part) for part in shown.split(",") if part.strip()),
        number(query, "low"),
        number(query, "high"),
        query.get("scale") or None,
        query.get("output") or None,
    )


def number(query: Mapping[str, str], name: str) -> float | None:
    """A finite number of the query; None where it is not given."""
    text = query.get(name)
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"`{name}={text}`: a number is expected.")
    return value


def whole_number(query: Mapping[str, str], name: str, least: int, most: int) -> int | None:
    """A whole number of the query within limits; None where it is not given."""
    value = number(query, name)
    if value is not None and not (least <= value <= most and value == int(value)):
        raise InputError(f"`{name}={query[name]}`: a whole number from {least} to {most} is expected.")
    return None if value is None else int(value)


def _whole(text: str) -> int:
    text = text.strip().removeprefix("C")
    if not (text.isascii() and text.isdigit() and len(text) < 7):
        raise InputError(f"`shown=` holds {text!r}; numbers separated by commas are expected.")
    return int(text)

"""Numbers that users give, checked when they are given: a sentence instead of a crash, or of a run without end."""

import math
import re
from collections.abc import Collection
from dataclasses import fields
from numbers import Integral
from typing import Any, TypeVar

import numpy as np

from panther.errors import InputError, suggestion

T = TypeVar("T")

LARGEST_SEED = 2**32 - 1  # what all generators of random numbers take, also after mixing in a fold or a restart


def plain(value: Any) -> Any:
    """The same value in Python's own numbers, also inside lists, tuples and mappings: numpy's cannot be written to files."""
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 1):
        return value.tolist()
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    return type(value)(map(plain, value)) if type(value) in (list, tuple) else value


def make_plain(settings: Any) -> None:
    """The same for every field of a frozen value, while it is made."""
    for field in fields(settings):
        object.__setattr__(settings, field.name, plain(getattr(settings, field.name)))


def check_choice(what: str, value: Any, known: Collection[str]) -> None:
    """Refuse anything but one of the ``known`` names."""
    if value not in known:
        raise InputError(f"There is no {what} {value!r}; {suggestion(str(value), known)}.")


def check_whole(name: str, value: Any, least: int, most: int) -> None:
    """Refuse anything but a whole number from ``least`` to ``most``, Python's or numpy's; True and 3.0 are none."""
    value = plain(value)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InputError(f"{name} is {_shown(value)}; expected is a whole number from {least:,} to {most:,}.")


def check_number(name: str, value: Any, least: float = -math.inf, *, above: bool = False) -> None:
    """Refuse anything but a finite number, not below ``least`` or, with ``above``, larger than it."""
    value = plain(value)
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and -math.inf < value < math.inf
    if not good or value < least or (above and value == least):
        bound = "" if least == -math.inf else f" above {least:g}" if above else f" of at least {least:g}"
        raise InputError(f"{name} is {_shown(value)}; expected is a number{bound}.")


def part_of(items: tuple[T, ...], part: str) -> tuple[T, ...]:
    """Items of one task of a job array: every n-th, `2/8` from the second on; all of them for an empty ``part``."""
    if not part:
        return items
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", part)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise InputError(f"part: found {part!r}, expected k/n with k from 1 to n, e.g. 2/8")
    return items[int(match[1]) - 1 :: int(match[2])]


def check_seed(value: Any) -> None:
    """Refuse a seed that a generator would not take."""
    check_whole("seed", value, 0, LARGEST_SEED)


def seed_of(random_state: Any) -> int:
    """Seed of a `random_state` as scikit-learn takes it: a number is itself; a RandomState, or numpy's own for None, draws one."""
    if isinstance(random_state, Integral):
        return int(random_state)
    from sklearn.utils import check_random_state

    return int(check_random_state(random_state).randint(2**31 - 1))


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."

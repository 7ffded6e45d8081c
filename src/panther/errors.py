"""Errors, notes and warnings (one line: file or parameter, what was found, what was expected), and the checks of values that raise them."""

import difflib
import inspect
import math
import os
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from importlib.util import find_spec
from typing import Any, TypeVar

T = TypeVar("T")

PACKAGE = os.path.join(os.path.dirname(__file__), "")


class InputError(ValueError):
    """Input that cannot be used; the message is one line for the user.

    Raised while working on one slide it fails that slide only; raised outside it refuses the whole request (exit code 2).
    """


class DiskFullError(InputError):
    """Nothing more can be written: ends the whole request, also when raised while working on one slide."""


class Note(UserWarning):
    """Something about the input or the result that a user should know; the command line prints it as a note."""


class LeftOutWarning(UserWarning):
    """Some items failed, and the result is of the others; the command line lists them and ends with exit code 1."""

    def __init__(self, what: str, failures: Mapping[str, str]) -> None:
        super().__init__(f"{what}: {len(failures)}, e.g. {next(iter(failures.values()))}")
        self.failures = dict(failures)  # item -> reason


class NotABagError(InputError):
    """The file is sound but holds no features, e.g. coordinates or prototypes: passed over, not failed."""


def not_finite(source: str, row: int) -> InputError:
    """Error for a bag with a NaN or an infinite number in that row."""
    return InputError(f"{source}: row {row} of the features holds NaN or an infinite number; extract this slide again.")


def too_large(source: str) -> InputError:
    """Error for a bag whose numbers are finite, but not their sums or squares."""
    return InputError(f"{source}: features are too large to square in float32; rescale them.")


def note(*texts: str) -> None:
    """Warn of what is worth knowing."""
    for text in texts:
        _warn(Note(text))


def warn_left_out(what: str, failures: Mapping[str, str]) -> None:
    """Warn of items that failed."""
    if failures:
        _warn(LeftOutWarning(what, failures))


def _warn(warning: Warning) -> None:
    """Warn at the line of the user's code, outside of this package."""
    level, frame = 1, inspect.currentframe()
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(warning, stacklevel=level)


def listed(names: Iterable[object], limit: int = 40) -> str:
    """Names for a sentence: the first ones, and how many more there are."""
    texts = [str(name) for name in names]
    return ", ".join(texts[:limit]) + (f" and {len(texts) - limit} more" if len(texts) > limit else "")


def counted(values: Iterable[object], limit: int = 6) -> str:
    """Values for a sentence, the most frequent first, with how often each is there: `a (12), b (3)`."""
    return listed((f"{value} ({n})" for value, n in Counter(values).most_common()), limit)


@contextmanager
def error_context(source: object) -> Iterator[None]:
    """Add the name of a file to errors that are raised inside, unless they begin with it."""
    try:
        yield
    except InputError as error:
        if str(error).startswith(f"{source}: "):
            raise
        raise type(error)(f"{source}: {error}") from error


def suggestion(name: str, known: Collection[str], aliases: Mapping[str, str] | None = None, limit: int = 40) -> str:
    """The closest name, then what is known: ``did you mean 'ot'? Known are panther, ot``."""
    typed, plain = str(name).lower(), {entry.lower(): entry for entry in known}
    close = difflib.get_close_matches(typed, plain, n=1)
    guess = (aliases or {}).get(typed) or (plain[close[0]] if close else None)
    names = listed(known, limit) or "none"
    return f"did you mean {guess!r}? Known are {names}" if guess in known else f"known are {names}"


def describe(error: Exception) -> str:
    """Any error as one line."""
    if isinstance(error, InputError):
        return str(error)
    if isinstance(error, MemoryError) or "failed to map segment" in str(error):  # a library that does not fit
        return "out of memory; use fewer `workers`, a smaller `sample`, or a machine with more"
    if isinstance(error, OSError):
        return f"{error.filename or 'system'}: {error.strerror or error}"
    return f"unexpected {type(error).__name__}: {error}. Run again with -v to see where, and please report it."


def require_packages(extra: str, *names: str) -> None:
    """Refuse once, before the work, where packages of an extra are missing."""
    if missing := [name for name in names if find_spec(name) is None]:
        raise InputError(f"{', '.join(missing)}: not installed; pip install 'panther-wsi[{extra}]'")


LARGEST_SEED = 2**32 - 1  # what all generators of random numbers take, also after mixing in a fold or a restart


def plain(value: Any) -> Any:
    """The same value in Python's own numbers, also inside lists, tuples and mappings: numpy's cannot be written to files."""
    import numpy as np

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
        raise InputError(f"{name} is {_shown(value)}; expected a whole number from {least:,} to {most:,}.")


def check_number(name: str, value: Any, least: float = -math.inf, *, above: bool = False) -> None:
    """Refuse anything but a finite number, not below ``least`` or, with ``above``, larger than it."""
    value = plain(value)
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and -math.inf < value < math.inf
    if not good or value < least or (above and value == least):
        bound = "" if least == -math.inf else f" above {least:g}" if above else f" of at least {least:g}"
        raise InputError(f"{name} is {_shown(value)}; expected a number{bound}.")


def check_seed(value: Any) -> None:
    """Refuse a seed that a generator would not take."""
    check_whole("seed", value, 0, LARGEST_SEED)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."

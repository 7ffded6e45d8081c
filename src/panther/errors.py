"""Errors, notes and warnings (one line: file or parameter, found, expected), and checks of values."""

import difflib
import inspect
import math
import os
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from functools import cache
from importlib.util import find_spec
from typing import Any, TypeVar, get_type_hints

T = TypeVar("T")

PACKAGE = os.path.join(os.path.dirname(__file__), "")


class InputError(ValueError):
    """Invalid input; the message is one line for the user.

    Raised while processing one slide, it fails that slide only; otherwise the whole request (exit code 2).
    """


class DiskFullError(InputError):
    """Disk full: ends the whole request, also when raised while processing one slide."""


class Note(UserWarning):
    """Note about the input or the result; the command line prints it."""


class LeftOutWarning(UserWarning):
    """Some items failed and are not in the result; the command line lists them and ends with exit code 1."""

    def __init__(self, what: str, failures: Mapping[str, str]) -> None:
        super().__init__(f"{what}: {len(failures)}, e.g. {next(iter(failures.values()))}")
        self.failures = dict(failures)  # item -> reason


class NotABagError(InputError):
    """A valid file without features, e.g. of coordinates or prototypes: skipped, not failed."""


def not_finite(source: str, row: int) -> InputError:
    """Error for a bag with NaN or an infinite number in a row."""
    return InputError(f"{source}: row {row} of the features holds NaN or an infinite number; extract this slide again.")


def too_large(source: str) -> InputError:
    """Error for a bag of finite numbers with infinite sums or squares."""
    return InputError(f"{source}: features are too large to square in float32; rescale them.")


def note(*texts: str) -> None:
    """Issue notes."""
    for text in texts:
        _warn(Note(text))


def warn_left_out(what: str, failures: Mapping[str, str]) -> None:
    """Warn about items that failed."""
    if failures:
        _warn(LeftOutWarning(what, failures))


def _warn(warning: Warning) -> None:
    """Warn at the line of the user's code, outside this package."""
    level, frame = 1, inspect.currentframe()
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(warning, stacklevel=level)


def listed(names: Iterable[object], limit: int = 40) -> str:
    """Comma-separated names: the first ones and the number of others."""
    texts = [str(name) for name in names]
    return ", ".join(texts[:limit]) + (f" and {len(texts) - limit} more" if len(texts) > limit else "")


def counted(values: Iterable[object], limit: int = 6) -> str:
    """Values with their counts, the most frequent first: `a (12), b (3)`."""
    return listed((f"{value} ({n})" for value, n in Counter(values).most_common()), limit)


@contextmanager
def error_context(source: object) -> Iterator[None]:
    """Prefix errors raised inside with the name of a file, unless they begin with it."""
    try:
        yield
    except InputError as error:
        if str(error).startswith(f"{source}: "):
            raise
        raise type(error)(f"{source}: {error}") from error


def suggestion(name: str, known: Collection[str], limit: int = 40) -> str:
    """Closest name and all known ones: ``did you mean 'ot'? Known are panther, ot``."""
    typed, plain = str(name).lower(), {entry.lower(): entry for entry in known}
    close = difflib.get_close_matches(typed, plain, n=1)
    names = listed(known, limit) or "none"
    return f"did you mean {plain[close[0]]!r}? Known are {names}" if close else f"known are {names}"


def describe(error: Exception, item: str = "") -> str:
    """Any error as one line; ``item`` is what was worked on."""
    where = f"{item}: " if item else ""
    if isinstance(error, InputError):
        return str(error)
    if isinstance(error, MemoryError) or "failed to map segment" in str(error):  # a library that does not fit
        return f"{where}out of memory; use fewer `workers=`, a smaller `sample=`, or a machine with more"
    if isinstance(error, OSError):
        return f"{error.filename or item or 'system'}: {error.strerror or error}"
    return f"{where}unexpected {type(error).__name__}: {error}. Run again with -v to see where, and please report it."


UNKNOWN_KEY = ("extra_forbidden", "unexpected_keyword_argument")  # of pydantic's models and of dataclasses


def format_invalid(error: Any, name: str = "", known: Collection[str] = ()) -> str:
    """A pydantic error as one line; ``name`` goes before the keys, ``known`` are those that there may be."""
    return format_problem(first_problem(error), name, known)


def first_problem(error: Any) -> dict[str, Any]:
    """Problem of a pydantic error that is reported: a mistyped key before all others; with the messages of all types that a value may have."""
    problems = error.errors(include_url=False)
    first = min(problems, key=lambda one: (one["type"] not in UNKNOWN_KEY, one["type"] == "missing", len(one["loc"])))
    texts = [
        problem["msg"].removeprefix("Input should be ")
        for problem in problems
        if problem["loc"][:1] == first["loc"][:1]
    ]
    return {**first, "expected": " or ".join(dict.fromkeys(texts))}


def format_problem(problem: Mapping[str, Any], name: str = "", known: Collection[str] = (), expected: str = "") -> str:
    """One line: where, found, expected; ``expected`` replaces pydantic's words."""
    where = ".".join(str(part) for part in (name, *problem["loc"]) if part != "")
    if problem["type"] in UNKNOWN_KEY:
        return f"{where}: there is no such key; {suggestion(str(problem['loc'][-1]), known)}"
    if problem["type"] == "missing":
        return f"{where}: is missing"
    if problem["type"] == "value_error":
        text = str(problem["ctx"]["error"]).rstrip(".")
        return f"{where}: {text}" if where else text
    return f"{where}: found {_shown(problem['input'])}, expected {expected or problem['expected']}"


def require_packages(extra: str, *names: str) -> None:
    """Refuse, before the work, missing packages of an extra."""
    if missing := [name for name in names if find_spec(name) is None]:
        raise InputError(f"{', '.join(missing)}: not installed; pip install 'panther-wsi[{extra}]'")


LARGEST_SEED = 2**32 - 1  # valid for all random generators, also combined with a fold or restart


def plain(value: Any) -> Any:
    """The value with Python numbers instead of numpy's, which JSON cannot hold; also inside lists, tuples and mappings."""
    import numpy as np

    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 1):
        return value.tolist()
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    return type(value)(map(plain, value)) if type(value) in (list, tuple) else value


def make_plain(settings: Any) -> None:
    """Apply `plain` to all fields of a frozen dataclass, in its `__post_init__`."""
    for field in fields(settings):
        object.__setattr__(settings, field.name, plain(getattr(settings, field.name)))


@cache
def _adapters(kind: type) -> dict[str, Any]:
    from pydantic import TypeAdapter

    return {name: TypeAdapter(hint) for name, hint in get_type_hints(kind, include_extras=True).items()}


def check_fields(settings: Any) -> None:
    """Refuse values of other types than a dataclass declares, or out of their bounds, in its `__post_init__`; and apply `plain`."""
    make_plain(settings)
    kind: Any = type(settings)
    for name, adapter in _adapters(kind).items():
        try:
            adapter.validate_python(getattr(settings, name), strict=True)
        except ValueError as error:  # pydantic's
            raise InputError(format_invalid(error, name)) from error


def check_choice(what: str, value: Any, known: Collection[str]) -> None:
    """Refuse values other than the ``known`` names."""
    if value not in known:
        raise InputError(f"There is no {what} {value!r}; {suggestion(str(value), known)}.")


def check_whole(name: str, value: Any, least: int, most: int) -> None:
    """Refuse values other than whole numbers from ``least`` to ``most``, Python's or numpy's; True and 3.0 are refused."""
    value = plain(value)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InputError(f"{name}: found {_shown(value)}, expected a whole number from {least:,} to {most:,}")


def check_number(name: str, value: Any, least: float = -math.inf, *, above: bool = False) -> None:
    """Refuse values other than finite numbers of at least ``least`` or, with ``above``, larger than it."""
    value = plain(value)
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and -math.inf < value < math.inf
    if not is_number or value < least or (above and value == least):
        bound = "" if least == -math.inf else f" above {least:g}" if above else f" of at least {least:g}"
        raise InputError(f"{name}: found {_shown(value)}, expected a number{bound}")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."

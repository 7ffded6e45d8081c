"""Errors are sentences: the file, what was found, what was expected, what to do."""

import difflib
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


class InputError(ValueError):
    """Something the user gave is not right; the message is one complete sentence for the user.

    Raised while working on one slide it fails that slide only; raised outside it refuses the whole request (exit code 2).
    """


class LeftOutWarning(UserWarning):
    """Some were left out, and the result is of the others. Who calls from Python reads it; commands list them and keep it to themselves."""


class NotABagError(InputError):
    """The file is sound but holds no features, e.g. coordinates or prototypes: passed over, not failed."""


def not_finite(source: str, row: int) -> InputError:
    """Error for a bag with a NaN or an infinite number in that row."""
    return InputError(f"{source}: row {row} of the features holds NaN or an infinite number; extract this slide again.")


def too_large(source: str) -> InputError:
    """Error for a bag whose numbers are finite, but not their sums or squares."""
    return InputError(f"{source}: features are too large to square in float32; rescale them.")


def warn_left_out(what: str, failures: Mapping[str, str]) -> None:
    """Tell the caller of the function that calls this how many were left out, with the reason of the first."""
    if failures:
        first = next(iter(failures.values()))
        warnings.warn(f"{what}: {len(failures)}, e.g. {first}", LeftOutWarning, stacklevel=3)


def value_of(outcome: T | InputError) -> T:
    """Return the value, or raise the error that stands in its place."""
    if isinstance(outcome, InputError):
        raise outcome
    return outcome


def listed(names: Iterable[object], limit: int = 40) -> str:
    """Names for a sentence: the first ones, and how many more there are."""
    texts = [str(name) for name in names]
    return ", ".join(texts[:limit]) + (f" and {len(texts) - limit} more" if len(texts) > limit else "")


def counted(values: Iterable[object], limit: int = 6) -> str:
    """Values for a sentence, the most frequent first, with how often each is there: `a (12), b (3)`."""
    return listed((f"{value} ({n})" for value, n in Counter(values).most_common()), limit)


@contextmanager
def said_of(source: object) -> Iterator[None]:
    """Whatever is refused inside is said of that file."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{source}: {error}") from error


def suggestion(name: str, known: Collection[str], aliases: Mapping[str, str] | None = None, limit: int = 40) -> str:
    """What was probably meant, then what is known: ``did you mean 'ot'? Known are panther, ot``."""
    asked, plain = str(name).lower(), {entry.lower(): entry for entry in known}
    close = difflib.get_close_matches(asked, plain, n=1)
    meant = (aliases or {}).get(asked) or (plain[close[0]] if close else None)
    names = listed(known, limit) or "none"
    return f"did you mean {meant!r}? Known are {names}" if meant in known else f"known are {names}"

"""Names of slides: text, whatever the locale and the system; file names that are no text are known before the work."""

import os
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path

from panther.errors import InputError

SLIDE_SUFFIXES = (".svs", ".ndpi", ".mrxs", ".scn", ".tif", ".tiff", ".dcm", ".vms", ".bif", ".czi", ".h5", ".pt")


def composed(name: str) -> str:
    """Name with its letters composed (NFC): macOS names files with "u" and two dots where tables have "ü", which look the same."""
    return unicodedata.normalize("NFC", name)


def decomposed(name: str) -> str:
    """Name as files from macOS have it (NFD)."""
    return unicodedata.normalize("NFD", name)


def without_suffix(name: str) -> str:
    """Name of a slide, composed, without the ending of its file."""
    return composed(name[: name.rindex(".")] if name.lower().endswith(SLIDE_SUFFIXES) else name)


def as_text(name: str) -> str | None:
    """Name of a file as text, composed: its bytes are UTF-8 in every locale; None where they are not."""
    try:
        return composed(os.fsencode(name).decode("utf-8"))
    except UnicodeDecodeError:
        return None
    except UnicodeEncodeError:  # text that this locale has no bytes for: it did not come from a file
        return composed(name)


def not_text(path: Path) -> str:
    """Sentence about a file whose name is no text."""
    return f"{path.name!a}: the file's name is not UTF-8, so no table or result can name the slide; rename the file."


def refuse_repeated_columns(source: object, columns: Sequence[object]) -> None:
    """Refuse a table in which two columns have one name: which is meant, only the user knows. Columns without a name may repeat."""
    names = [str(name).strip() for name in columns]
    repeated = [name for index, name in enumerate(names) if name and name in names[:index]]
    if repeated:
        raise InputError(
            f"{source}: {names.count(repeated[0])} columns are called {repeated[0]!r}; rename or remove all but one."
        )


def refuse_collisions(source: object, names: Sequence[str], stored: Sequence[str]) -> None:
    """Refuse names that would be ``stored`` under one and the same, because a character is not allowed there."""
    first: dict[str, str] = {}
    for name, key in zip(names, stored, strict=True):
        if first.setdefault(key, name) != name:
            raise InputError(
                f"{source}: the columns {first[key]!r} and {name!r} would both be stored as {key!r}; rename one of them."
            )


def differ_in_case(names: Iterable[str]) -> list[tuple[str, str]]:
    """Pairs of names that differ only in upper and lower case, in their order."""
    seen: dict[str, str] = {}
    names = sorted(set(names))
    return [(first, name) for name in names if (first := seen.setdefault(name.casefold(), name)) != name]

"""Small files of text and plain values, read as UTF-8 and written whole or not at all."""

import json
from pathlib import Path
from typing import Any

from panther.storage.atomic import atomic_write


def read_text(path: Path) -> str:
    """Text of a file, with or without a byte order mark; an OSError or UnicodeDecodeError where it is none."""
    return path.read_text(encoding="utf-8-sig")


def write_text(path: Path, text: str) -> None:
    """Write text with the line ends that it has; the same text gives the same bytes on every system."""
    with atomic_write(path) as temporary:
        # a file name that is no Unicode holds lone surrogates; as \udc80 they are JSON and come back the same
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace", newline="")


def read_json(path: Path) -> Any:
    """Plain values of a JSON file; an OSError or ValueError where it is none."""
    return json.loads(read_text(path))


def write_json(path: Path, value: Any) -> None:
    """Write plain values; the same ones give the same bytes. NaN and infinity are refused: JSON has no word for them."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")

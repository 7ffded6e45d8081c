"""JSON files that appear whole or not at all, and that every reader of JSON accepts."""

import json
from pathlib import Path
from typing import Any

from panther.storage.atomic import atomic_write


def write_json(path: Path, value: Any) -> None:
    """Write plain values; the same ones give the same bytes. NaN and infinity are refused: JSON has no word for them."""
    text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    with atomic_write(path) as temporary:
        # a file name that is no Unicode holds lone surrogates; as \udc80 they are JSON and come back the same
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")

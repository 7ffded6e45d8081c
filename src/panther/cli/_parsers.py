"""Text of the command line as values."""

import json
from typing import Any

from panther.errors import InputError


def parse_shares(text: str) -> tuple[float, float, float]:
    """`80:10:10` as shares of train, val and test."""
    try:
        train, val, test = map(float, text.split(":"))
    except ValueError as error:
        raise InputError(f"--shares {text!r} is not train:val:test; give e.g. 80:10:10.") from error
    return train, val, test


def parse_settings(pairs: list[str] | None, **named: str | None) -> dict[str, Any]:
    """Settings of a method: `steps=3` as a number, `normalise=false` as a truth value, other words as they are.

    ``named`` are those that have an option of their own; None where it was not given.
    """
    settings: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
    for pair in pairs or []:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise InputError(f"--set {pair!r} is not understood; give a name and a value, e.g. --set steps=3.")
        try:
            settings[name] = json.loads(value)
        except ValueError:
            settings[name] = value
    return settings


def parse_names(text: str | None) -> list[str] | None:
    """Names that stand one after the other: A,B,C."""
    return [name.strip() for name in text.split(",") if name.strip()] if text else None


def parse_places(pairs: list[str] | None) -> dict[str, str]:
    """Given vectors: `titan=new/titan.h5ad` as a name and a place."""
    places: dict[str, str] = {}
    for pair in pairs or []:
        name, equals, place = pair.partition("=")
        if not equals or not name or not place:
            raise InputError(
                f"--embeddings {pair!r} is not understood; give NAME=PATH, e.g. --embeddings titan=titan.h5ad."
            )
        places[name] = place
    return places

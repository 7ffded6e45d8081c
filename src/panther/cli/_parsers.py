"""Text of the command line as values."""

from panther.errors import InputError


def parse_count(text: str) -> int:
    """`16` as a number."""
    try:
        return int(text)
    except ValueError as error:
        raise InputError(f"-C {text!r} is not understood; give a number, or auto.") from error


def parse_range(text: str) -> tuple[int, int]:
    """`4:64` as two numbers."""
    try:
        smallest, largest = map(int, text.split(":"))
    except ValueError as error:
        raise InputError(f"The range {text!r} is not understood; give two numbers like 4:64.") from error
    return smallest, largest


def parse_shares(text: str) -> tuple[float, float, float]:
    """`80:10:10` as shares of train, val and test."""
    try:
        train, val, test = map(float, text.split(":"))
    except ValueError as error:
        raise InputError(f"--shares {text!r} is not train:val:test; give e.g. 80:10:10.") from error
    return train, val, test

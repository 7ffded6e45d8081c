"""Errors are sentences: the file, what was found, what was expected, what to do."""


class InputError(ValueError):
    """Something the user gave is not right; the message is one complete sentence for the user.

    Raised while working on one slide it fails that slide only; raised outside it refuses the whole request (exit code 2).
    """


class NotABagError(InputError):
    """The file is sound but holds no features, e.g. coordinates or prototypes: passed over, not failed."""


def not_finite(source: str, row: int) -> InputError:
    """Error for a bag with a NaN or an infinite number in that row."""
    return InputError(f"{source}: row {row} of the features holds NaN or an infinite number; extract this slide again.")

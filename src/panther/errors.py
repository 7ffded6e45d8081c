"""Errors are sentences: the file, what was found, what was expected, what to do."""


class InputError(ValueError):
    """Something the user gave is not right; the message is one complete sentence for the user.

    Raised while working on one slide it fails that slide only; raised outside it refuses the whole request (exit code 2).
    """

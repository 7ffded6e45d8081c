"""The stains of one slide, from patches spread over its tissue."""

from collections.abc import Callable
from typing import Any

import numpy as np

from panther.errors import InputError, suggestion
from panther.slides.stain.macenko import StainFit, fit_stains

METHODS: dict[str, Callable[[np.ndarray], StainFit]] = {StainFit.METHOD: fit_stains}
PATCHES = 64  # read to see the stains
EVERY = 4  # row and column of a patch that is looked at


def check_method(name: str) -> None:
    """Refuse a stain normalisation that there is not."""
    if name == "augment":
        raise InputError(
            "Stains are not augmented here: features are encoded once, so a random stain would stay with a patch for good instead of "
            "changing from one look to the next. Use `stain=macenko`, or `panther prototypes --centre slide` on features as they are."
        )
    if name not in METHODS:
        raise InputError(f"There is no stain normalisation {name!r}; {suggestion(name, list(METHODS))}.")


def fit_slide(method: str, read: Callable[[Any], np.ndarray], places: np.ndarray) -> StainFit:
    """Stains by the patches at some of ``places``; NotStained where they cannot be told."""
    seen = []
    for place in places[np.unique(np.linspace(0, len(places) - 1, PATCHES).round().astype(int))] if len(places) else ():
        try:
            seen.append(read(place)[::EVERY, ::EVERY].reshape(-1, 3))
        except InputError:
            continue  # a damaged patch is reported where it is encoded
    return METHODS[method](np.concatenate(seen) if seen else np.zeros((0, 3), np.uint8))

"""`random_state` as scikit-learn takes it."""

from numbers import Integral
from typing import Any

from sklearn.utils import check_random_state

RandomState = Any  # int, numpy.random.RandomState or None


def seed_of(random_state: RandomState) -> int:
    """Seed of the package's generators: the number itself, or one drawn from the RandomState (from numpy's own for None)."""
    if isinstance(random_state, Integral):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))

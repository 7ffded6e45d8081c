"""Parameters of `Panther` under the names that they had before; this file goes with the next version."""

import warnings
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar, cast

Init = TypeVar("Init", bound=Callable[..., None])
RENAMED = {"restarts": "n_init", "passes": "max_iter", "sample": "n_sample_patches"}


def with_new_names(params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters under the names they have now, with a warning for each old one."""
    new = dict(params)
    for old in [name for name in params if name in RENAMED or name == "em_options"]:
        value = new.pop(old)
        given = {RENAMED[old]: value} if old in RENAMED else dict(value or {})  # em_options: each setting by itself
        instead = ", ".join(f"`{name}=`" for name in given) or "gone: its settings are parameters"
        warnings.warn(
            f"`{old}=` of Panther is {instead} now; the next version will not take the old name.",
            FutureWarning,
            stacklevel=3,
        )
        new |= given
    return new


def takes_old_names(init: Init) -> Init:
    """An `__init__` that takes old names beside its own; its signature, and so what grid search sees, stays clean."""

    @wraps(init)
    def wrapper(self: Any, *args: Any, **params: Any) -> None:
        init(self, *args, **with_new_names(params))

    return cast(Init, wrapper)

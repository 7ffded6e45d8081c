"""The package names parameters (`any_resolution=True`); here they become what the user typed: options, or keys of a study file."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

_COLUMN = re.compile(r"`columns\.(slide|patient|site)`")
_PARAMETER = re.compile(r"`([a-z][a-z0-9_]*)=([^`]*)`")
# where an option is not the parameter's name with dashes; for one command alone, with its name
_OPTIONS: dict[str | tuple[str, str], str] = {
    "any_resolution": "--allow-mixed-resolution",
    "by": "--class-from",
    "by_patient": "--level patient",
    "formats": "--format",
    "groups": "--group",
    "k": "-k",
    "labels": "--patch-labels",
    "mpp_table": "--slide-mpp-table",
    "n_prototypes": "-C",
    "probe": "--classifier",
    "site": "--site-column",
    "slide": "--slides",
    ("convert", "mpp"): "--slide-mpp",
}
_STUDY_KEYS = {"any_resolution": "allow_mixed_resolution"}  # where a key of study files is not the parameter's name


class _Command(NamedTuple):
    """What was typed: a command, and the options that it has."""

    name: str
    options: frozenset[str]


_RUNNING: ContextVar[_Command | None] = ContextVar("command", default=None)


@contextmanager
def speaking_of(name: str, command: Any) -> Iterator[None]:
    """Translate for this command; ``command`` is what typer made of it."""
    options = frozenset(spelling for one in command.params for spelling in one.opts)
    token = _RUNNING.set(_Command(name, options))
    try:
        yield
    finally:
        _RUNNING.reset(token)


def as_typed(sentence: str) -> str:
    """Sentence with options in place of parameters: `dtype=float32` is --dtype float32, `columns.site` is --site-column."""
    return _PARAMETER.sub(_option, _COLUMN.sub(r"--\1-column", sentence))


def _option(found: re.Match[str]) -> str:
    name, value = found.groups()
    command = _RUNNING.get() or _Command("", frozenset())
    if command.name == "run":
        key = _STUDY_KEYS.get(name, name)
        return f"`{key}: {value.lower() if value in ('True', 'False') else value}`" if value else f"`{key}:`"
    option = _OPTIONS.get((command.name, name)) or _OPTIONS.get(name) or f"--{name.replace('_', '-')}"
    if option.split()[0] not in command.options and "--set" in command.options and value:
        return f"--set {name}={value}"
    return option if value in ("", "True") else f"{option} {value}"

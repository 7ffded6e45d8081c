"""The package names parameters (`any_resolution=True`); here they become what the user typed: options, or keys of a study file."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple

_COLUMN = re.compile(r"`columns\.(slide|patient|site)`")
_PARAMETER = re.compile(r"`([a-z][a-z0-9_]*)=([^`]*)`")
# where an option is not the parameter's name with dashes; for one command alone, with its name
_OPTIONS: dict[str | tuple[str, str], str] = {
    "any_resolution": "--allow-mixed-resolution",
    "by_patient": "--level patient",
    "covariates": "--covariate",
    "formats": "--format",
    "groups": "--group",
    "k": "-k",
    "mpp_table": "--slide-mpp-table",
    "n_prototypes": "-C",
    "site": "--site-column",
    ("convert", "mpp"): "--slide-mpp",
}
_STUDIES = ("run",)  # commands that take a study file in place of options
_STUDY_KEYS = {"any_resolution": "allow_mixed_resolution"}  # where a key of study files is not the parameter's name


class _Command(NamedTuple):
    """A command that runs, and the options that it has."""

    name: str
    options: frozenset[str]


_NONE = _Command("", frozenset())
_RUNNING: ContextVar[_Command] = ContextVar("command", default=_NONE)


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
    command = _RUNNING.get()
    if command.name not in _STUDIES:
        sentence = _COLUMN.sub(r"--\1-column", sentence)
    return _PARAMETER.sub(partial(_option, command), sentence)


def _option(command: _Command, found: re.Match[str]) -> str:
    name, value = found.groups()
    option = _OPTIONS.get((command.name, name)) or _OPTIONS.get(name) or f"--{name.replace('_', '-')}"
    if option.split()[0] not in command.options:
        if command.name in _STUDIES:
            return (
                f"`{_STUDY_KEYS.get(name, name)}: {value.lower() if value in ('True', 'False') else value}".strip()
                + "`"
            )
        if "--set" in command.options and value:  # a setting of the method
            return f"--set {name}={value}"
    return option if value in ("", "True") else f"{option} {value}"

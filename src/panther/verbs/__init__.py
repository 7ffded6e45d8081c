"""Verbs: one function per command, which is also the function of `import panther`.

A verb declares its parameters once: Annotated types (`panther.verbs.parameters`) and a numpydoc section. `panther.cli` generates the command
from them, `verb` checks the arguments of a call from Python. A verb writes files where an output is named and returns a value with
``summary()``, lines for people, and ``to_json()``; notes and failed items are warnings (`panther.errors`). It does not print.
"""

import functools
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any, ParamSpec, TypeVar

from panther.errors import InputError

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Verb:
    """A command and its function."""

    command: str  # "study new": a command of a group
    panel: str  # of the help
    function: Callable[..., Any]


VERBS: dict[str, Verb] = {}


def verb(command: str, panel: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Register a function as a command; its arguments are checked against its annotations."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        variadic = [p.name for p in signature.parameters.values() if p.kind is p.VAR_KEYWORD]

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            arguments = signature.bind(*args, **kwargs).arguments
            for name in variadic:
                arguments |= arguments.pop(name, {})
            return _checked(function)(**{name: _python_number(value) for name, value in arguments.items()})

        VERBS[command] = Verb(command, panel, call)
        return call

    return decorate


def _python_number(value: Any) -> Any:
    numpy = sys.modules.get("numpy")
    return value.item() if numpy and isinstance(value, numpy.generic) else value


@functools.cache
def _checked(function: Callable[..., R]) -> Callable[..., R]:
    """The function behind pydantic, whose errors become one line: `parameter: found X, expected Y`."""
    from pydantic import ConfigDict, ValidationError, validate_call

    target = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__)
    target.__kwdefaults__ = function.__kwdefaults__
    target.__annotations__ = {k: kind for k, kind in function.__annotations__.items() if k != "return"}
    validated = validate_call(config=ConfigDict(arbitrary_types_allowed=True))(target)

    @functools.wraps(function)
    def call(**arguments: Any) -> R:
        try:
            return validated(**arguments)
        except ValidationError as error:
            if error.title != function.__name__:
                raise
            errors = error.errors(include_url=False)
            name = errors[0]["loc"][0]
            expected = dict.fromkeys(e["msg"].removeprefix("Input should be ") for e in errors if e["loc"][0] == name)
            raise InputError(f"{name}: found {arguments[str(name)]!r}, expected {' or '.join(expected)}") from None

    return call

"""Verbs: one function per command, which is also the function of `import panther`.

A verb declares its parameters once: Annotated types (`panther.verbs.parameters`) and a numpydoc section. `panther.cli` generates the command
from them, `verb` checks the arguments of a call from Python. A verb writes files where an output is named and returns a value with
``to_lines()``, lines for people, and ``to_json()``; notes and failed items are warnings (`panther.errors`). It does not print.
"""

import functools
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

from panther.errors import InputError, format_invalid

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Verb:
    """A command and its function."""

    command: str  # "study new": a command of a group
    panel: str  # of the help
    function: Callable[..., Any]


@dataclass(frozen=True)
class Text:
    """Result of a verb that has no type of its own."""

    lines: list[str]
    values: dict[str, Any]

    def to_lines(self) -> list[str]:
        """Lines for people."""
        return self.lines

    def to_json(self) -> dict[str, Any]:
        """The same for programs."""
        return self.values


VERBS: dict[str, Verb] = {}


def verb(command: str, panel: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Register a function as a command; its arguments are checked against its annotations."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        variadic = [p.name for p in inspect.signature(function).parameters.values() if p.kind is p.VAR_KEYWORD]

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            from pydantic import ValidationError

            arguments = inspect.signature(function).bind(*args, **kwargs).arguments
            for name in variadic:
                arguments |= arguments.pop(name, {})
            if numpy := sys.modules.get("numpy"):  # whose numbers are not Python's
                arguments = {n: v.item() if isinstance(v, numpy.generic) else v for n, v in arguments.items()}
            try:
                checked = _validator(function)(**arguments)
            except ValidationError as error:  # one line, `parameter: found X, expected Y`
                raise InputError(format_invalid(error)) from None
            return function(**checked)  # type: ignore[call-arg]

        VERBS[command] = Verb(command, panel, call)
        return call

    return decorate


@functools.cache
def _validator(function: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    """Function of the same signature that checks its arguments by pydantic and returns them."""
    from pydantic import ConfigDict, validate_call

    signature = inspect.signature(function)

    def collect(*args: Any, **kwargs: Any) -> dict[str, Any]:
        arguments = signature.bind(*args, **kwargs).arguments
        for parameter in signature.parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD:
                arguments |= arguments.pop(parameter.name, {})
        return arguments

    collect.__signature__ = signature  # type: ignore[attr-defined]
    collect.__annotations__ = {name: kind for name, kind in function.__annotations__.items() if name != "return"}
    return validate_call(config=ConfigDict(arbitrary_types_allowed=True))(collect)

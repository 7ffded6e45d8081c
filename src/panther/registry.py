"""A registry: a name, an entry and its metadata side by side. Duplicates and unknown metadata raise."""

import importlib.util
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Generic, TypeVar

from panther.errors import InputError, suggestion

T = TypeVar("T")
M = TypeVar("M")


@dataclass(frozen=True)
class Nothing:
    """Metadata of entries that have none."""


@dataclass(frozen=True)
class Settings:
    """Metadata of entries that have nothing but settings."""

    options: tuple[str, ...] = ()  # their names


@dataclass(frozen=True)
class Entry(Generic[T, M]):
    """A registered value and its metadata."""

    name: str
    value: T
    metadata: M


@dataclass(frozen=True)
class Registry(Generic[T, M]):
    """Named entries of one kind, in the order of their registration."""

    kind: str  # e.g. "aggregator", for messages
    metadata: type[M]  # dataclass of an entry's metadata; its field `name` is filled in
    _entries: dict[str, Entry[T, M]] = field(default_factory=dict)

    def register(self, name: str, **metadata: Any) -> Callable[[T], T]:
        """Return a decorator that registers its argument under ``name``."""
        known = [entry.name for entry in fields(self.metadata)]  # type: ignore[arg-type]
        for key in metadata:
            if key not in known:
                raise TypeError(f"the {self.kind} {name!r} has metadata {key!r}; {suggestion(key, known)}")
        facts = self.metadata(**metadata, **({"name": name} if "name" in known else {}))

        def decorate(value: T) -> T:
            if name in self._entries:
                raise ValueError(f"the {self.kind} {name!r} is registered already")
            self._entries[name] = Entry(name, value, facts)
            return value

        return decorate

    def entry(self, name: str) -> Entry[T, M]:
        """Entry of that name; an unknown name is an error that lists the known ones."""
        if name not in self._entries:
            raise InputError(f"There is no {self.kind} {name!r}; {suggestion(name, self._entries)}.")
        return self._entries[name]

    def check_options(self, name: str, options: Iterable[str]) -> None:
        """Refuse settings that the entry's metadata does not list in `options`."""
        known = getattr(self.entry(name).metadata, "options", ())
        for option in options:
            if option not in known:
                raise InputError(f"The {self.kind} {name!r} has no setting {option!r}; {suggestion(option, known)}.")

    def __getitem__(self, name: str) -> T:
        return self.entry(name).value

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[Entry[T, M]]:
        return iter(self._entries.values())

    def names(self) -> list[str]:
        """Return the registered names."""
        return list(self._entries)


PLUGINS: list[Path] = []  # files that were loaded; workers load them too


def load_plugins(files: Iterable[Path]) -> None:
    """Import the user's Python files that register methods, encoders, heads, losses or readers."""
    for file in map(Path.absolute, map(Path, files)):
        name = f"panther_plugin_{file.stem}"
        if file in PLUGINS:
            continue
        spec = importlib.util.spec_from_file_location(name, file)
        if spec is None or spec.loader is None or not file.is_file():
            raise InputError(f"{file}: expected a Python file with plug-ins")
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            raise InputError(f"{file}: {type(error).__name__}: {error}") from error
        PLUGINS.append(file)

"""A registry: a name, an entry and its metadata side by side. Duplicates raise."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from panther.errors import InputError, suggestion

T = TypeVar("T")


@dataclass(frozen=True)
class Entry(Generic[T]):
    """One registered thing and what is known about it."""

    name: str
    value: T
    metadata: Mapping[str, Any]


@dataclass(frozen=True)
class Registry(Generic[T]):
    """Named entries of one kind, in the order of their registration."""

    kind: str  # "aggregator": used in error messages
    _entries: dict[str, Entry[T]] = field(default_factory=dict)

    def register(self, name: str, **metadata: Any) -> Callable[[T], T]:
        """Return a decorator that registers its argument under ``name``."""

        def decorate(value: T) -> T:
            if name in self._entries:
                raise ValueError(f"the {self.kind} {name!r} is registered already")
            self._entries[name] = Entry(name, value, MappingProxyType(metadata))
            return value

        return decorate

    def entry(self, name: str) -> Entry[T]:
        """Entry of that name, or a sentence that lists the known ones."""
        if name not in self._entries:
            raise InputError(f"There is no {self.kind} {name!r}; {suggestion(name, self._entries)}.")
        return self._entries[name]

    def __getitem__(self, name: str) -> T:
        return self.entry(name).value

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[Entry[T]]:
        return iter(self._entries.values())

    def names(self) -> list[str]:
        """Return the registered names."""
        return list(self._entries)

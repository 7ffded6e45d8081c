"""One meaning of C4 in a report: a fold's prototypes are called and coloured as those of the atlas that they are, or marked apart."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from panther.errors import InputError
from panther.explain.palette import colour as colour_of
from panther.prototypes.compare import compare
from panther.storage.prototypes import load_prototypes
from panther.types import Prototypes

APART = "#9a958c"  # colour of a prototype that the atlas does not have


@dataclass(frozen=True)
class FoldNames:
    """What a fold's prototypes are called in a report whose other tabs show another set."""

    fold: int
    count: int  # of the fold's prototypes
    matched: Mapping[int, int]  # of the fold -> of the reference
    known: bool  # whether there is another set at all

    def number(self, c: int) -> int | None:
        """Number that the rest of the report has for it; None where there is no such prototype."""
        return self.matched.get(c) if self.known else c

    def colour(self, c: int) -> str:
        """Colour of the prototype that it is."""
        number = self.number(c)
        return APART if number is None else colour_of(number)

    def apart(self, c: int) -> str:
        """Name of one that is only this fold's."""
        return f"fold {self.fold + 1}'s own C{c}"

    @property
    def order(self) -> list[int]:
        """Prototypes of the fold in the order of the reference, its own ones last."""
        numbers = [self.number(c) for c in range(self.count)]
        return sorted(range(self.count), key=lambda c: (numbers[c] is None, numbers[c] or 0, c))

    @property
    def said(self) -> str:
        """Sentence about the names; empty where there is but one set."""
        if not self.known:
            return ""
        found = sum(self.number(c) is not None for c in range(self.count))
        if not found:
            return "None of this fold's prototypes is one of the other tabs', so they have names of their own."
        rest = "" if found == self.count else "; the others are this fold's own"
        return f"{found} of this fold's {self.count} prototypes are the same as the other tabs' and have their names and colours{rest}."


def fold_names(fold: int, own: Prototypes, reference: Prototypes | None, known: bool) -> FoldNames:
    """Match a fold's prototypes one to one with those of the other tabs (Hungarian, by distance); only near ones count as the same.

    ``known`` says that other tabs show prototypes; where it is not known which, none is matched.
    """
    count = len(own)
    if not known or reference is None:
        return FoldNames(fold, count, {}, known)
    try:
        pairs = compare(reference, own).same
    except InputError:  # of another encoder, or another projection
        pairs = ()
    return FoldNames(fold, count, {theirs: ours for ours, theirs in pairs}, known)


def renamed(text: str, names: Mapping[int, str]) -> str:
    """Sentence in which C3 has its name."""
    return re.sub(r"\bC(\d+)\b", lambda found: names.get(int(found[1]), found[0]), text)


def find_prototypes(wanted: str, files: list[Path]) -> Prototypes | None:
    """The file of this content, where it is there."""
    for file in files:
        try:
            found = load_prototypes(file)
        except (InputError, OSError):
            continue
        if found.content_hash() == wanted:
            return found
    return None

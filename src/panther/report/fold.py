"""The fold that a report shows: how much of each prototype every slide or patient has, which are alike, what the prototypes are called.

C4 has one meaning in a report: a fold's prototypes are called and coloured as those of the atlas that they are, or marked apart.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from panther.aggregators import aggregators, build
from panther.errors import InputError
from panther.explain.palette import colour as colour_of
from panther.explain.projection import FEWEST_UMAP, principal_components, umap, umap_installed
from panther.mixture import effective_number
from panther.models.model import load_model
from panther.prototypes.compare import compare
from panther.report.data import Run
from panther.storage.prototypes import load_prototypes
from panther.study.jobs import load_embeddings
from panther.types import Prototypes

WEIGHTS = ("weight", "count")  # statistics that say how much of a prototype there is
APART = "#9a958c"  # colour of a prototype that the atlas does not have


@dataclass(frozen=True, eq=False)
class Mixtures:
    """Of one method in one fold, all samples of the study."""

    row: str  # method
    fold: int
    samples: tuple[str, ...]
    weights: np.ndarray | None  # (n, C), rows adding up to 1; None where the method keeps none
    positions: dict[str, tuple[np.ndarray, tuple[str, str]]]  # projection -> (n, 2) and the names of its axes
    prototypes: Prototypes
    file: str  # of the prototypes, in the cache

    @property
    def used(self) -> np.ndarray | None:
        """How many prototypes each sample really uses (n,), 1 to C; None where there are no weights."""
        return None if self.weights is None else effective_number(torch.from_numpy(self.weights)).numpy()


@dataclass(frozen=True, eq=False)
class _Kept:
    """What the cache has of one method in one fold, before the vectors are read."""

    row: str
    fold: int
    vectors: Path
    model: Path | None  # the one that was tested; None where the file is gone
    prototypes: Prototypes
    file: str
    columns: list[tuple[int, str, int]]

    @property
    def weights(self) -> list[int] | None:
        """Columns that hold the share of each prototype; None where they do not."""
        where = {c: i for i, (c, statistic, _) in enumerate(self.columns) if statistic in WEIGHTS}
        count = len(self.prototypes)
        return [where[c] for c in range(count)] if set(where) == set(range(count)) else None


def load_mixtures(run: Run) -> Mixtures | None:
    """Those of the first method that keeps weights, the reference before others; where none does, of the first.

    None where the cache is gone.
    """
    found = None
    for kept in _kept(run):
        if kept.weights is not None:
            return _read(run, kept)
        found = found or kept
    return None if found is None else _read(run, found)


def _kept(run: Run) -> Iterator[_Kept]:
    """The reference first, then as in the study; of each the first fold first."""
    if "embeddings" not in run.trained:
        return
    reference = run.study.reference_row
    entries = run.trained.dropna(subset="embeddings").drop_duplicates("embeddings")  # heads share vectors
    entries = entries.assign(other=entries["method"] != reference)
    for _, entry in entries.sort_values(["other", "fold"], kind="stable").iterrows():
        vectors, file = run.cached(entry["embeddings"]), run.cached(entry["prototypes"])
        if vectors is not None and file is not None and entry["aggregator"] in aggregators.names():
            prototypes = load_prototypes(file)
            columns = build(entry["aggregator"], prototypes, entry["options"]).columns()
            yield _Kept(
                entry["row"], entry["fold"], vectors, run.cached(entry["model"]), prototypes, file.name, columns
            )


def _read(run: Run, kept: _Kept) -> Mixtures:
    x, units = load_embeddings(kept.vectors)
    positions = {} if kept.model is None else _positions(kept.model, np.array(x))
    weights = None if kept.weights is None else _shares(x[:, kept.weights].astype(float))
    return Mixtures(kept.row, kept.fold, tuple(units), weights, positions, kept.prototypes, kept.file)


def _positions(model: Path, x: np.ndarray) -> dict[str, tuple[np.ndarray, tuple[str, str]]]:
    """Projections of the embeddings as the model that was tested scales them."""
    scaler = load_model(model).scaler
    assert scaler is not None  # of methods that keep embeddings
    scaled = scaler(torch.from_numpy(x)).double().numpy()
    positions = {"PCA": principal_components(scaled)}
    if umap_installed() and len(x) >= FEWEST_UMAP:
        positions["UMAP"] = umap(scaled)
    return positions


def _shares(amounts: np.ndarray) -> np.ndarray:
    """Rows (n, C) that add up to 1."""
    return amounts / np.maximum(amounts.sum(1, keepdims=True), 1e-30)


@dataclass(frozen=True)
class FoldNames:
    """What a fold's prototypes are called in a report whose other tabs show another set."""

    fold: int
    count: int  # of the fold's prototypes
    matched: Mapping[int, int]  # of the fold -> of the reference
    known: bool  # whether there is another set at all
    compared: bool = True  # whether the other set was at hand
    colours: Mapping[int, str] = field(default_factory=dict)  # of the reference, where people gave them

    def number(self, c: int) -> int | None:
        """Number that the rest of the report has for it; None where there is no such prototype."""
        return self.matched.get(c) if self.known else c

    def colour(self, c: int) -> str:
        """Colour of the prototype that it is."""
        number = self.number(c)
        return APART if number is None else self.colours.get(number) or colour_of(number)

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
        if not self.compared:
            return "Which prototypes the other tabs show is not known here, so this fold's have names of their own; they may be the same."
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
        return FoldNames(fold, count, {}, known, compared=False)
    try:
        pairs = compare(reference, own).same
    except InputError:  # of another encoder, or another projection
        pairs = ()
    return FoldNames(fold, count, {theirs: ours for ours, theirs in pairs}, known)


def as_settings(text: str) -> str:
    """Sentence in which Python's `sample=` is the setting `sample` of a study."""
    return re.sub(r"`(\w+)=`", r"`\1`", text)


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

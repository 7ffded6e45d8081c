"""Slides most like one slide, with reasons."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from panther.alike.distances import Mixtures, as_mixture, as_proportions, variance_floor
from panther.alike.search import EmbeddingsLike, as_embeddings, refuse_unsound, searchable
from panther.alike.whose import Whose, groups, whose_slides
from panther.errors import InputError
from panther.explain.names import Names, as_names
from panther.explain.similar.query import Query, ask, method_of
from panther.explain.similar.reasons import Reasons, reasons_of
from panther.limits import check_whole
from panther.statistics import Apart
from panther.storage.bags import BagLike
from panther.storage.clinical import TCGA, USUAL, ColumnsLike
from panther.storage.embedding_files.opened import Embeddings
from panther.types import Prototypes

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Hit:
    """A slide that is like the one asked about."""

    rank: int
    slide: str
    distance: float
    patient: str
    reasons: Reasons | None = None  # None where the embeddings know nothing of prototypes
    clinical: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        told = {"rank": self.rank, "slide": self.slide, "patient": self.patient, "distance": self.distance}
        why = None if self.reasons is None else self.reasons.to_dict()
        return {**told, "clinical": dict(self.clinical), "reasons": why}


@dataclass(frozen=True)
class SimilarSlides:
    """Slides most like one slide, the nearest first; equally near ones in the order of the file.

    Attributes
    ----------
    query : str
        The slide asked about.
    on : str
        What was compared: pi, mixture, cosine or euclidean.
    hits : tuple of Hit
        What was found, each with its ``distance`` and its ``reasons``.
    notes : tuple of str
        What to mind.
    """

    query: str
    on: str
    hits: tuple[Hit, ...]
    notes: tuple[str, ...] = ()
    method: tuple[str, Mapping[str, Any]] = (
        "panther",
        MappingProxyType({}),
    )  # that made the embeddings, and its settings

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {"query": self.query, "on": self.on, "hits": [hit.to_dict() for hit in self.hits]}

    def to_frame(self) -> "pd.DataFrame":
        """One row per hit."""
        import pandas as pd

        rows = [
            {
                "rank": hit.rank,
                "slide": hit.slide,
                "patient": hit.patient,
                "distance": hit.distance,
                "reasons": "" if hit.reasons is None else hit.reasons.sentence,
            }
            for hit in self.hits
        ]
        return pd.DataFrame(rows, columns=["rank", "slide", "patient", "distance", "reasons"])


def similar(
    embeddings: EmbeddingsLike,
    query: str | Path | BagLike,
    k: int = 10,
    *,
    on: str | None = None,
    prototypes: Prototypes | Path | str | None = None,
    table: "Path | str | pd.DataFrame | None" = None,
    columns: ColumnsLike = USUAL,
    same_patient: bool = False,
    leave_site_out: bool = False,
    names: Names = None,
) -> SimilarSlides:
    """Find the slides most like one slide, and say why they are.

    Parameters
    ----------
    embeddings : EmbeddingTable, AnnData or path
        Embeddings of the cohort, or the file of them (`.h5ad`, `.npz`), which is searched on disk.
    query : str, path or bag
        A slide of the embeddings by its name; or a new slide's features (a file, a bag or an array), with ``prototypes``.
    k : int, default=10
        How many slides.
    on : {"pi", "mixture", "cosine", "euclidean"}, optional
        What is compared: proportions of prototypes (Hellinger's distance; the default where there are any), whole mixtures (proportions, means and
        variances), or vectors of any kind.
    prototypes : Prototypes or path, optional
        Those that the embeddings were made with; only a new slide needs them.
    table : path or DataFrame, optional
        Clinical table that says whose slide is whose; by default the embeddings' own columns do.
    columns : Columns or dict
        Names of the table's columns, where they are not the usual ones.
    same_patient : bool, default=False
        Whether other slides of the patient may be found.
    leave_site_out : bool, default=False
        Whether slides of the same site are left out: stain and scanner make them alike.
    names : path or mapping, optional
        Names of the prototypes, for the reasons.

    Returns
    -------
    SimilarSlides
        Slides with distances and reasons; `to_frame()` is a table of them.

    Examples
    --------
    >>> import numpy as np, torch, panther
    >>> rng = np.random.default_rng(0)
    >>> bags = {name: rng.normal(size=(50, 3)) + 3 * np.eye(3)[n % 2] for n, name in enumerate("abcd")}
    >>> table = panther.embed_cohort(bags, panther.Prototypes(3 * torch.eye(3)))
    >>> found = panther.similar(table, "a", k=1, names={0: "tumour"})
    >>> found.hits[0].slide
    'c'
    >>> found.hits[0].reasons.shared[0]
    0
    """
    check_whole("`k=`", k, 1, 1_000_000)
    k = int(k)  # numpy's too
    cohort = as_embeddings(embeddings)
    way = searchable(cohort, on)
    asked = ask(cohort, way, query, prototypes)
    refuse_unsound(asked.row, [asked.name], cohort.source)
    whose = whose_slides(cohort, table, columns)
    notes = [*cohort.problems, *whose.notes]
    apart = _apart(asked, whose, same_patient, leave_site_out)
    (found,) = way.nearest(asked.row, k, apart)
    if len(found.rows) == 0:
        raise InputError(
            f"{cohort.source}: there is no slide of another patient that {asked.name} could be compared with."
        )
    if len(found.rows) < k:
        notes.append(f"There are {len(found.rows)} slides to compare with, fewer than the {k} that were asked for.")
    why = _Reasoning(cohort, asked, way.on, as_names(names, _count(cohort)))
    hits = tuple(
        _hit(cohort, rank, int(row), float(distance), whose, why)
        for rank, (row, distance) in enumerate(zip(*found, strict=True), 1)
    )
    return SimilarSlides(asked.name, way.on, hits, tuple(notes), method_of(cohort))


def _apart(asked: Query, whose: Whose, same_patient: bool, leave_site_out: bool) -> list[Apart]:
    """Slides that are no answer: the slide itself, those of its patient and, where asked for, of its site; a new slide may have a barcode."""
    row = asked.position
    barcode = asked.name[:12] if re.match(TCGA, asked.name) else asked.name
    patient, site = (whose.patients[row], whose.sites[row]) if row >= 0 else (barcode, None)
    itself = [Apart(np.array([row]), np.arange(len(whose.patients)))] if row >= 0 else []
    own = [] if same_patient else [groups([patient], whose.patients)]
    if leave_site_out and site is None:
        raise InputError(
            f"{asked.name}: its site is not known, so slides of other sites cannot be told; give `table=` with a site column."
        )
    return [*itself, *own, *([groups([site], whose.sites)] if leave_site_out else [])]


def _hit(cohort: Embeddings, rank: int, row: int, distance: float, whose: Whose, why: "_Reasoning") -> Hit:
    clinical = {name: values[row] for name, values in cohort.columns.items()}
    return Hit(rank, cohort.samples[row], distance, whose.patients[row], why(row), clinical)


def _count(cohort: Embeddings) -> int:
    return 0 if cohort.weights is None else int(cohort.weights.shape[1])


class _Reasoning:
    """Reasons for any row of the cohort."""

    def __init__(self, cohort: Embeddings, asked: Query, on: str, names: Mapping[int, str]) -> None:
        self._cohort, self._asked, self._names = cohort, asked, names
        whole = on == "mixture" and asked.vector is not None
        self._floor = variance_floor(cohort.rows, cohort.mixtures) if whole else None

    def __call__(self, row: int) -> Reasons | None:
        if self._cohort.weights is None or self._asked.pi is None:
            return None
        hit = as_proportions(self._cohort.weights[row])
        called = self._asked.name, self._cohort.samples[row]
        return reasons_of(self._asked.pi, hit, self._names, called, self._mixtures(row))

    def _mixtures(self, row: int) -> tuple[Mixtures, Mixtures] | None:
        if self._floor is None or self._asked.vector is None:
            return None
        other = self._cohort.rows[row : row + 1].double().numpy()
        one, two = (as_mixture(v[0], self._cohort.mixtures, self._floor) for v in (self._asked.vector, other))
        return one, two

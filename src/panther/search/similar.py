"""Slides most like one slide, with reasons."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from panther.aggregators.embed import embed
from panther.errors import InputError, check_whole, suggestion
from panther.explain.names import Names, as_names, label
from panther.search.distances import (
    Mixtures,
    as_mixture,
    as_proportions,
    hellinger_parts,
    parts_of_distance,
    symmetric_kl,
    variance_floor,
)
from panther.search.neighbours import (
    EmbeddingsLike,
    Searchable,
    Whose,
    as_embeddings,
    groups,
    refuse_unsound,
    searchable,
    whose_slides,
)
from panther.statistics import Apart
from panther.storage.bags import BagLike, as_bag
from panther.storage.clinical import TCGA, USUAL, ColumnsLike
from panther.storage.embeddings import Embeddings
from panther.storage.prototypes import as_prototypes
from panther.types import Prototypes

if TYPE_CHECKING:
    import pandas as pd


SHARED = 0.9  # of what two slides have in common is told by name
MOST = 4  # prototypes in a part of the sentence
LEAST = 0.02  # share of the tissue, and difference of shares, worth a word
STRIKING = 0.2  # of the distance squared: a look that is told


@dataclass(frozen=True)
class Compared:
    """One prototype in both slides."""

    prototype: int
    name: str  # C2 tumour
    query: float  # its share of the slide that was asked about
    hit: float  # ... and of the one that was found
    adds: float  # to the distance squared, by its shares
    adds_look: float | None = None  # ... and by how it looks; None: proportions alone are compared
    divergence: float | None = None  # symmetric KL per dimension, nats; None: not compared, or one of them lacks it

    @property
    def common(self) -> float:
        """Share that both have."""
        return min(self.query, self.hit)


@dataclass(frozen=True)
class Reasons:
    """Why two slides are alike; prototypes in the order of what both have of them."""

    prototypes: tuple[Compared, ...]
    sentence: str

    @property
    def common(self) -> float:
        """Share of the tissue that is of the same prototypes."""
        return sum(one.common for one in self.prototypes)

    @property
    def shared(self) -> tuple[int, ...]:
        """Prototypes that make up most of what both have, the largest first."""
        return tuple(one.prototype for one in _shared(self.prototypes))

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "sentence": self.sentence,
            "common": self.common,
            "shared": [f"C{c}" for c in self.shared],
            "prototypes": [{**asdict(one), "common": one.common} for one in self.prototypes],
        }


def reasons_of(
    query: np.ndarray,
    hit: np.ndarray,
    names: Mapping[int, str],
    called: tuple[str, str],
    mixtures: tuple[Mixtures, Mixtures] | None = None,
) -> Reasons:
    """Reasons from the proportions (C,) of both slides and, where whole mixtures are compared, from these; ``called`` are the slides' names."""
    by_share, by_look, divergence = hellinger_parts(query, hit), None, None
    if mixtures is not None:
        by_share, by_look = parts_of_distance(*mixtures)
        divergence = symmetric_kl(*mixtures) / mixtures[0].means.shape[-1]
    compared = [
        Compared(
            c,
            label(c, names),
            float(query[c]),
            float(hit[c]),
            float(by_share[c]),
            None if by_look is None else float(by_look[c]),
            None if divergence is None or min(query[c], hit[c]) <= 0 else float(divergence[c]),
        )
        for c in range(len(query))
    ]
    ordered = tuple(sorted(compared, key=lambda one: (-one.common, one.prototype)))
    return Reasons(ordered, _sentence(ordered, called))


def _sentence(prototypes: tuple[Compared, ...], called: tuple[str, str]) -> str:
    common = sum(one.common for one in prototypes)
    shared = _shared(prototypes)
    told = [
        f"{common:.0%} of the tissue is of the same prototypes: "
        + ", ".join(f"{one.name} ({one.query:.0%} and {one.hit:.0%})" for one in shared)
        + "."
        if shared
        else f"They share hardly any tissue ({common:.1%})."
    ]
    other = sorted(prototypes, key=lambda one: (-abs(one.query - one.hit), one.prototype))
    other = [one for one in other if abs(one.query - one.hit) >= LEAST][:MOST]
    more = {
        called[1]: [one for one in other if one.hit > one.query],
        called[0]: [one for one in other if one.hit < one.query],
    }
    for name, mine in more.items():
        words = [f"{one.name} ({max(one.query, one.hit):.0%} against {one.common:.0%})" for one in mine]
        told += [f"{name} has more {', '.join(words)}."] if words else []
    total = sum(one.adds + (one.adds_look or 0) for one in prototypes)
    looks = [one for one in prototypes if total and (one.adds_look or 0) >= STRIKING * total]
    if looks:
        words = [f"{one.name} ({(one.adds_look or 0) / total:.0%} of the distance)" for one in looks[:MOST]]
        told.append(f"What looks most different: {', '.join(words)}.")
    return " ".join(told)


def _shared(prototypes: tuple[Compared, ...]) -> list[Compared]:
    """Prototypes that make up nine tenths of what is in common, few and large ones."""
    found: list[Compared] = []
    total = sum(one.common for one in prototypes)
    for one in prototypes:
        if one.common < LEAST or sum(f.common for f in found) >= SHARED * total or len(found) == MOST:
            break
        found.append(one)
    return found


OWN = ("prototypes", "kernel", "method")  # of an embedding's settings: not the method's


@dataclass(frozen=True, eq=False)
class Query:
    """The slide asked about."""

    name: str
    row: np.ndarray  # (1, D), as it is searched
    position: int = -1  # in the embeddings; -1: it is not there
    pi: np.ndarray | None = None  # (C,)
    vector: np.ndarray | None = None  # (1, C(1+2d)), where embeddings are mixtures


def ask(cohort: Embeddings, way: Searchable, query: Any, prototypes: Prototypes | Path | str | None) -> Query:
    """The slide asked about: a row of the cohort by its name, or a new one that is embedded like the others."""
    if isinstance(query, (str, Path)) and str(query) in cohort.samples:
        row = cohort.position(str(query))
        pi = None if cohort.weights is None else as_proportions(cohort.weights[row])
        vector = cohort.rows[row : row + 1].double().numpy() if cohort.mixtures else None
        return Query(str(query), way.row(row), row, pi, vector)
    if isinstance(query, (str, Path)) and not Path(query).exists():
        raise InputError(
            f"{query}: neither a slide of {cohort.source} nor a feature file; among its {len(cohort.samples)} slides "
            f"{suggestion(str(query), cohort.samples, limit=5)}."
        )
    bag = as_bag(query)
    if prototypes is None or not cohort.settings:
        missing = "`prototypes=`, those that the embeddings were made with" if cohort.settings else "a slide of its own"
        raise InputError(f"{bag.source}: a new slide is compared as the others were embedded; give {missing}.")
    fitted = as_prototypes(prototypes)
    if cohort.made_with is not None and fitted.content_hash() != cohort.made_with:
        raise InputError(
            f"{cohort.source}: was embedded with other prototypes than those given, so a new slide's numbers would not be comparable; "
            "give the file that was used."
        )
    method, options = method_of(cohort)
    embedded = embed(bag, fitted, method, **options)
    vector = embedded.vector.double().numpy()[None]
    weights = embedded.aux.get("weights")
    pi = None if weights is None else as_proportions(weights.double().numpy())
    searched = pi[None] if way.on == "pi" and pi is not None else vector
    known = cohort.position(bag.slide_id) if bag.slide_id in cohort.samples else -1  # it is no answer to itself
    return Query(bag.slide_id, searched, known, pi, vector if cohort.mixtures else None)


def method_of(cohort: Embeddings) -> tuple[str, dict[str, Any]]:
    """Method that made the embeddings, and its settings."""
    options = {name: value for name, value in cohort.settings.items() if name not in OWN}
    return str(cohort.settings.get("method", "panther")), options


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

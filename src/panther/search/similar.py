"""The most similar slides of a slide, with reasons."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from panther.aggregators.embed import embed
from panther.errors import InputError, suggestion
from panther.explain.names import label
from panther.search.distances import (
    as_mixture,
    as_proportions,
    hellinger_parts,
    parts_of_distance,
    variance_floor,
)
from panther.search.neighbours import Ownership, Searchable, groups
from panther.statistics import Apart
from panther.storage.bags import BagLike, as_bag
from panther.storage.clinical import TCGA
from panther.storage.embeddings import Embeddings
from panther.storage.prototypes import as_prototypes
from panther.types import Prototypes

if TYPE_CHECKING:
    import pandas as pd

SHARED = 0.9  # share of the common tissue whose prototypes are listed
MOST = 4  # prototypes in a list
LEAST = 0.02  # smallest share, and difference of shares, that is listed
STRIKING = 0.2  # smallest share of the squared distance for a listed difference in appearance
NOT_OPTIONS = ("prototypes", "kernel", "method")  # settings of an embedding that are not options of its method


@dataclass(frozen=True)
class Compared:
    """One prototype in both slides."""

    prototype: int
    name: str  # C2 tumour
    query: float  # share of the query
    hit: float  # ... and of the hit
    adds: float  # term of the squared distance, of its shares
    adds_look: float | None  # ... and of its appearance; None: only proportions are compared
    common: float  # share common to both


@dataclass(frozen=True)
class Reasons:
    """Reasons for a similarity."""

    sentence: str
    common: float  # share of the tissue with the same prototypes
    shared: tuple[int, ...]  # prototypes of most of the common tissue, the largest first
    prototypes: tuple[Compared, ...]  # sorted by their common share

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {**asdict(self), "shared": [f"C{c}" for c in self.shared]}


def explain(prototypes: Sequence[Compared], slides: tuple[str, str]) -> Reasons:
    """Reasons from the prototypes of two slides (query, hit): those of most of the common tissue, and those that differ."""
    prototypes = sorted(prototypes, key=lambda one: (-one.common, one.prototype))
    shared: list[Compared] = []
    common = sum(one.common for one in prototypes)
    for one in prototypes[:MOST]:
        if one.common < LEAST or sum(other.common for other in shared) >= SHARED * common:
            break
        shared.append(one)
    parts = [f"They share hardly any tissue ({common:.1%})."]
    if shared:
        names = ", ".join(f"{one.name} ({one.query:.0%} and {one.hit:.0%})" for one in shared)
        parts = [f"{common:.0%} of the tissue is of the same prototypes: {names}."]
    others = sorted(prototypes, key=lambda one: (-abs(one.query - one.hit), one.prototype))
    others = [one for one in others if abs(one.query - one.hit) >= LEAST][:MOST]
    for slide, is_hit in ((slides[1], True), (slides[0], False)):
        more = [one for one in others if (one.hit > one.query) == is_hit]
        names = ", ".join(f"{one.name} ({max(one.query, one.hit):.0%} against {one.common:.0%})" for one in more)
        parts += [f"{slide} has more {names}."] if more else []
    total = sum(one.adds + (one.adds_look or 0) for one in prototypes)
    looks = [one for one in prototypes if total and (one.adds_look or 0) >= STRIKING * total]
    if looks:
        names = ", ".join(f"{one.name} ({(one.adds_look or 0) / total:.0%} of the distance)" for one in looks[:MOST])
        parts.append(f"What looks most different: {names}.")
    return Reasons(" ".join(parts), common, tuple(one.prototype for one in shared), tuple(prototypes))


@dataclass(frozen=True, eq=False)
class Query:
    """The slide to be compared."""

    name: str
    row: np.ndarray  # (1, D), as compared
    position: int = -1  # in the embeddings; -1: not among them
    pi: np.ndarray | None = None  # (C,)
    vector: np.ndarray | None = None  # (1, C(1+2d)), if embeddings are mixtures


def make_query(
    cohort: Embeddings, way: Searchable, query: str | Path | BagLike, prototypes: Prototypes | Path | str | None
) -> Query:
    """A row of the cohort by its name, or a new slide embedded like the others."""
    if isinstance(query, (str, Path)) and str(query) in cohort.samples:
        row = cohort.samples.index(str(query))
        pi = None if cohort.weights is None else as_proportions(cohort.weights[row])
        vector = cohort.rows[row : row + 1].double().numpy() if cohort.mixtures else None
        return Query(str(query), way.rows[row : row + 1].double().numpy(), row, pi, vector)
    if isinstance(query, (str, Path)) and not Path(query).exists():
        known = suggestion(str(query), cohort.samples, limit=5)
        raise InputError(f"query: {query} is neither a feature file nor one of {len(cohort.samples)} slides; {known}")
    bag = as_bag(query)
    if not cohort.settings:
        raise InputError(
            f"query: {bag.source} is a new slide, expected a slide of {cohort.source}, which has no method"
        )
    if prototypes is None:
        raise InputError(f"prototypes: found None, expected those of {cohort.source}; {bag.source} is a new slide")
    fitted = as_prototypes(prototypes)
    if cohort.made_with is not None and fitted.content_hash() != cohort.made_with:
        raise InputError(f"prototypes: not those that {cohort.source} was embedded with")
    method = str(cohort.settings.get("method", "panther"))
    options = {name: value for name, value in cohort.settings.items() if name not in NOT_OPTIONS}
    embedded = embed(bag, fitted, method, **options)
    vector = embedded.vector.double().numpy()[None]
    weights = embedded.aux.get("weights")
    pi = None if weights is None else as_proportions(weights.double().numpy())
    searched = pi[None] if way.on == "pi" and pi is not None else vector
    position = cohort.samples.index(bag.slide_id) if bag.slide_id in cohort.samples else -1
    return Query(bag.slide_id, searched, position, pi, vector if cohort.mixtures else None)


@dataclass(frozen=True)
class Hit:
    """A slide similar to the query."""

    rank: int
    slide: str
    distance: float
    patient: str
    reasons: Reasons | None = None  # None: embeddings without prototypes
    clinical: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            **{"rank": self.rank, "slide": self.slide, "patient": self.patient, "distance": self.distance},
            "clinical": dict(self.clinical),
            "reasons": self.reasons and self.reasons.to_dict(),
        }


@dataclass(frozen=True)
class SimilarSlides:
    """Most similar slides, the nearest first, ties in the order of the file.

    Attributes
    ----------
    query : str
        Name of the query.
    on : str
        Distance: pi, mixture or cosine.
    hits : tuple of Hit
        The most similar slides, each with its ``distance`` and its ``reasons``.
    notes : tuple of str
        Remarks on the embeddings and the table.
    """

    query: str
    on: str
    hits: tuple[Hit, ...]
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"query": self.query, "on": self.on, "hits": [hit.to_dict() for hit in self.hits]}

    def to_lines(self) -> list[str]:
        """Hits with distances and reasons."""
        lines = [f"{len(self.hits)} slides most like {self.query} on {self.on}"]
        for hit in self.hits:
            patient = "" if hit.patient == hit.slide else f" (patient {hit.patient})"
            lines.append(f"{hit.rank:>3}  {hit.distance:.4f}  {hit.slide}{patient}")
            lines += [] if hit.reasons is None else [f"       {hit.reasons.sentence}"]
        return lines

    def to_frame(self) -> "pd.DataFrame":
        """One row per hit."""
        import pandas as pd

        columns = ["rank", "slide", "patient", "distance", "reasons"]
        rows = [
            (hit.rank, hit.slide, hit.patient, hit.distance, "" if hit.reasons is None else hit.reasons.sentence)
            for hit in self.hits
        ]
        return pd.DataFrame(rows, columns=columns)


def nearest_slides(
    cohort: Embeddings,
    way: Searchable,
    query: Query,
    k: int,
    apart: Sequence[Apart],
    owners: Ownership,
    names: Mapping[int, str],
) -> tuple[Hit, ...]:
    """The ``k`` most similar slides with reasons; those in the same group of ``apart`` are excluded."""
    if not np.isfinite(query.row).all():
        raise InputError(f"{cohort.source}: the embedding of {query.name} holds NaN or infinite numbers")
    ((rows, distances),) = way.nearest(query.row, k, apart)
    if len(rows) == 0:
        raise InputError(f"{cohort.source}: no slide of another patient can be compared with {query.name}")
    whole = way.on == "mixture" and query.vector is not None
    floor = variance_floor(cohort.rows, cohort.mixtures) if whole else None
    hits = []
    for rank, (row, distance) in enumerate(zip(rows.tolist(), distances.tolist(), strict=True), 1):
        clinical = {name: values[row] for name, values in cohort.columns.items()}
        reasons = _reasons(cohort, query, row, names, floor)
        hits.append(Hit(rank, cohort.samples[row], distance, owners.patients[row], reasons, clinical))
    return tuple(hits)


def _reasons(
    cohort: Embeddings, query: Query, row: int, names: Mapping[int, str], floor: np.ndarray | None
) -> Reasons | None:
    """Reasons from the proportions of both slides and, with a ``floor`` of variances, from whole mixtures."""
    if cohort.weights is None or query.pi is None:
        return None
    pi, rho = query.pi, as_proportions(cohort.weights[row])
    by_share, by_look = hellinger_parts(pi, rho), None
    if floor is not None and query.vector is not None:
        other = cohort.rows[row : row + 1].double().numpy()
        mixtures = [as_mixture(vector[0], cohort.mixtures, floor) for vector in (query.vector, other)]
        by_share, by_look = parts_of_distance(*mixtures)
    looks = [None] * len(pi) if by_look is None else by_look.tolist()
    numbers = zip(pi.tolist(), rho.tolist(), by_share.tolist(), looks, np.minimum(pi, rho).tolist(), strict=True)
    compared = [Compared(c, label(c, names), *one) for c, one in enumerate(numbers)]
    return explain(compared, (query.name, cohort.samples[row]))


def excluded(query: Query, owners: Ownership, *, same_patient: bool, leave_site_out: bool) -> list[Apart]:
    """Slides to exclude: the query itself, those of its patient and of its site; a new slide may have a TCGA barcode."""
    row = query.position
    barcode = query.name[:12] if re.match(TCGA, query.name) else query.name
    patient, site = (owners.patients[row], owners.sites[row]) if row >= 0 else (barcode, None)
    apart = [Apart(np.array([row]), np.arange(len(owners.patients)))] if row >= 0 else []
    if not same_patient:
        apart.append(groups([patient], owners.patients))
    if leave_site_out:
        if site is None:
            raise InputError(
                f"leave_site_out: the site of {query.name} is unknown, expected a table with a site column"
            )
        apart.append(groups([site], owners.sites))
    return apart

"""Which rows a study has, what each is made of, and for which encoders."""

from collections.abc import Mapping, Sequence
from typing import Any

from panther.aggregators import aggregators
from panther.cohort.covariates import COVARIATES
from panther.errors import InputError, suggestion
from panther.mil import networks
from panther.models.blocks import CONCAT, GIVEN, REDUCED, UNMADE
from panther.models.settings import Named
from panther.study.parts import NOT_NAMED, Given

Embeddings = Mapping[str, Mapping[str, Given]]  # name -> encoder -> where they lie


def given_row(name: str) -> Named:
    """Row of given vectors; the tables call it by its name."""
    return Named(name=GIVEN, options={"name": name}, label=name)


def rows_of(methods: Sequence[Named], embeddings: Embeddings, covariates: bool = False) -> list[Named]:
    """Every row: the methods, then the given vectors; with covariates, these alone, and beside every row that is an embedding."""
    rows = [*methods, *map(given_row, embeddings)]
    if not covariates:
        return rows
    both = [_beside_covariates(row) for row in rows if row.name not in networks and not reads_covariates(row)]
    return [*rows, Named(name=COVARIATES), *both]


def _beside_covariates(row: Named) -> Named:
    of = row.options["of"] if row.name == CONCAT else [row.title]
    return Named(name=CONCAT, options={"of": [*of, COVARIATES]}, label=f"{row.title} + {COVARIATES}")


def reads_covariates(row: Named) -> bool:
    """Whether covariates are among what stands side by side in a row."""
    of = row.options.get("of") if row.name == CONCAT else None
    return isinstance(of, list) and COVARIATES in of


def parts_of(row: Named, rows: Sequence[Named]) -> tuple[Named, ...]:
    """What stands side by side in a row: itself, or what a concatenation names."""
    if row.name != CONCAT:
        return (row,)
    known = {one.title: one for one in rows}
    return tuple(known.get(title) or Named(name=title) for title in row.options["of"])


def is_given(row: Named) -> bool:
    """Whether its vectors come from a file."""
    return row.name == GIVEN


def is_of_patches(row: Named) -> bool:
    """Whether it is made of the features of patches."""
    return row.name not in UNMADE


def given_of(row: Named, encoder: str, embeddings: Embeddings) -> Given | None:
    """Where a given row's vectors for an encoder lie; those of no named encoder serve all."""
    by_encoder = embeddings.get(row.options["name"], {})
    return by_encoder.get(encoder) or by_encoder.get(NOT_NAMED)


def encoders_of(row: Named, rows: Sequence[Named], features: Sequence[str], embeddings: Embeddings) -> list[str]:
    """Encoders for which a row can be made, in the order of the study."""
    parts = parts_of(row, rows)
    given = [part for part in parts if is_given(part)]
    named = [encoder for part in given for encoder in embeddings.get(part.options["name"], {})]
    candidates = list(features) if any(map(is_of_patches, parts)) else list(dict.fromkeys(named or [NOT_NAMED]))
    found = [encoder for encoder in candidates if all(given_of(part, encoder, embeddings) for part in given)]
    # one vector for all and one by encoder side by side: the encoders count
    return [encoder for encoder in found if encoder != NOT_NAMED] or found


def check_rows(rows: Sequence[Named], features: Sequence[str]) -> None:
    """Refuse concatenations of what is not there, and methods on patches where the study has none."""
    for row in rows:
        if row.name == CONCAT:
            _check_concat(row, rows)
        for part in parts_of(row, rows):
            if is_of_patches(part) and not features:
                raise InputError(
                    f"{part.title!r} is made of patches, but the study has only vectors of whole slides (embeddings:); "
                    "give the folder of their features as features: {encoder: folder}, or leave the method out."
                )


def _check_concat(row: Named, rows: Sequence[Named]) -> None:
    of: Any = row.options.get("of")
    if not isinstance(of, list) or not all(isinstance(title, str) for title in of) or len(of) < 2:
        raise InputError("concat needs the names of two rows or more, e.g. {concat: [panther, titan]}.")
    repeated = [title for number, title in enumerate(of) if title in of[:number]]
    if repeated:
        raise InputError(f"concat names {repeated[0]!r} twice; once is enough.")
    titles = [one.title for one in rows if one.name not in networks and one.name != CONCAT]
    known = list(dict.fromkeys([*titles, *aggregators.names(), *REDUCED]))
    for title in of:
        if title not in known:
            why = "is a network, which has no embedding" if title in networks else "is not a row"
            raise InputError(f"concat: {title!r} {why}; {suggestion(title, known)}.")

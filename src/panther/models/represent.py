"""New samples as the rows that a model's head reads: embedded, given, or several side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from panther.aggregators import embed_bags
from panther.cohort.covariates import COVARIATES, load_covariates
from panther.engine import HERE, Work
from panther.errors import InputError, listed
from panther.models.blocks import GIVEN, UNMADE, Block
from panther.models.blocks.reduction import made_by
from panther.models.model import Model
from panther.prototypes.centre import with_sites_of
from panther.storage.clinical import ClinicalTable
from panther.types import Openable, Prototypes


def given_names(model: Model) -> list[str]:
    """Names of the given vectors that a model reads."""
    return [_name(block) for block in model.representation() if block.method.name == GIVEN]


def reads_patches(model: Model) -> bool:
    """Whether a model reads features of patches."""
    return model.scaler is None or any(block.method.name not in UNMADE for block in model.representation())


@dataclass(frozen=True, eq=False)
class NewSamples:
    """What a model may read of new samples."""

    bags: Sequence[Openable]  # features of patches
    given: Mapping[str, Sequence[Openable]] = field(
        default_factory=dict
    )  # vectors, by name: bags with one row per slide
    clinic: pd.DataFrame | None = None  # one row per sample, strings: where covariates are read from


class _Rows(NamedTuple):
    names: Sequence[str]
    vectors: np.ndarray
    failures: Mapping[str, str]


def represent(model: Model, new: NewSamples, work: Work = HERE) -> tuple[list[str], np.ndarray, dict[str, str]]:
    """Samples, their rows (n, D) and what failed; the mean of given vectors of a patient's slides is the patient's."""
    tables = [_rows_of(block, new, work) for block in model.representation()]
    first = tables[0]
    failures = {name: why for table in tables for name, why in table.failures.items()}
    if len(tables) == 1:
        return list(first.names), np.asarray(first.vectors), failures
    where = [{name: row for row, name in enumerate(table.names)} for table in tables]
    everyone = dict.fromkeys(name for table in tables for name in table.names)
    samples = [name for name in everyone if all(name in rows for rows in where)]
    titles = [block.method.title for block in model.representation()]
    for name in everyone:
        lacking = [title for title, rows in zip(titles, where, strict=True) if name not in rows]
        if lacking and name not in failures:
            failures[name] = f"{name}: has no {listed(lacking)}, which the model reads; it is left out."
    if not samples:
        raise InputError(f"None of the samples has all that the model reads ({listed(titles)}).")
    pieces = [table.vectors[[rows[name] for name in samples]] for table, rows in zip(tables, where, strict=True)]
    return samples, np.concatenate(pieces, 1), failures


def with_new_sites(
    model: Model, bags: Sequence[Openable], table: ClinicalTable | None, work: Work = HERE
) -> tuple[Model, list[str]]:
    """The model, knowing the sites of these bags where its prototypes ask for sites and a table names them; and what to say about it."""
    known: dict[int, tuple[Prototypes, list[str]]] = {}

    def grown(prototypes: Prototypes) -> Prototypes:
        if id(prototypes) not in known:
            known[id(prototypes)] = with_sites_of(prototypes, bags, table, work)
        return known[id(prototypes)][0]

    blocks = tuple(
        replace(block, basis=grown(block.basis)) if isinstance(block.basis, Prototypes) else block
        for block in model.blocks
    )
    prototypes = None if model.prototypes is None else grown(model.prototypes)
    notes = dict.fromkeys(note for _, told in known.values() for note in told)
    return replace(model, blocks=blocks, prototypes=prototypes), list(notes)


def _rows_of(block: Block, new: NewSamples, work: Work) -> _Rows:
    if block.method.name == COVARIATES:
        return _clinical(block, new)
    own = new.bags
    if block.method.name == GIVEN:
        if _name(block) not in new.given:
            raise InputError(
                f"The model reads vectors of {_name(block)!r}; give their file or folder with `embeddings={_name(block)}=PATH`."
            )
        own = new.given[_name(block)]
    made = made_by(block.method)
    table = embed_bags(own, block.basis, made.name, made.options, work=work)
    return _Rows(table.samples, table.vectors, table.failures)


def _clinical(block: Block, new: NewSamples) -> _Rows:
    """Covariates of those samples that the table and the features have."""
    fitted = load_covariates(block.method.options["columns"])
    if new.clinic is None:
        raise InputError(
            f"The model reads covariates ({listed([one.column for one in fitted.columns])}); give the table that has them with `table=`."
        )
    bags = [*new.bags, *(bag for own in new.given.values() for bag in own)]
    wanted = [name for name in dict.fromkeys(bag.sample for bag in bags) if name in new.clinic.index]
    rows = new.clinic.loc[wanted] if bags else new.clinic
    return _Rows(list(rows.index), fitted.encode(rows).astype(np.float32), {})


def _name(block: Block) -> str:
    return str(block.method.options["name"])

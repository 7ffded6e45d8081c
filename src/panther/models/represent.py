"""New samples as the rows that a model's head reads: embedded, given, or several side by side."""

from collections.abc import Mapping, Sequence

import numpy as np

from panther.aggregators import EmbeddingTable, embed_cohort
from panther.errors import InputError, listed
from panther.execution import HERE, Work
from panther.models.blocks import GIVEN, UNMADE, Block
from panther.models.blocks.reduction import made_by
from panther.models.model import Model
from panther.types import Openable


def given_names(model: Model) -> list[str]:
    """Names of the given vectors that a model reads."""
    return [_name(block) for block in model.representation() if block.method.name == GIVEN]


def reads_patches(model: Model) -> bool:
    """Whether a model reads features of patches."""
    return model.scaler is None or any(block.method.name not in UNMADE for block in model.representation())


def represent(
    model: Model, bags: Sequence[Openable], given: Mapping[str, Sequence[Openable]], work: Work = HERE
) -> tuple[list[str], np.ndarray, dict[str, str]]:
    """Samples, their rows (n, D) and what failed; given vectors are bags with one row per slide, whose mean is the patient's."""
    tables = [_embedded(block, bags, given, work) for block in model.representation()]
    first = tables[0]
    failures = {name: why for table in tables for name, why in table.failures.items()}
    if len(tables) == 1:
        return first.samples, np.asarray(first.vectors), failures
    where = [{name: row for row, name in enumerate(table.samples)} for table in tables]
    everyone = dict.fromkeys(name for table in tables for name in table.samples)
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


def _embedded(
    block: Block, bags: Sequence[Openable], given: Mapping[str, Sequence[Openable]], work: Work
) -> EmbeddingTable:
    if block.method.name in UNMADE and block.method.name != GIVEN:
        raise InputError(f"The model reads {block.method.title}, which new samples cannot be given yet.")
    own = bags
    if block.method.name == GIVEN:
        if _name(block) not in given:
            raise InputError(
                f"The model reads vectors of {_name(block)!r}; give their file or folder with `embeddings={_name(block)}=PATH`."
            )
        own = given[_name(block)]
    made = made_by(block.method)
    return embed_cohort(own, block.basis, made.name, made.options, work=work)


def _name(block: Block) -> str:
    return str(block.method.options["name"])

"""What is wrong with a study file, in one sentence: pydantic's findings as people would say them."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from pydantic import ValidationError

from panther.cohort.spec import SplitSpec, TaskSpec
from panther.errors import suggestion
from panther.models.settings import Named
from panther.storage.clinical import Columns
from panther.study.parts import ColumnSplits, External

# keys that may be of one kind or another -> what they may be; pydantic would name the kinds it tried, one by one
EITHER = {
    "retrieval": "true, false, or numbers of neighbours from 1 to 1,000, e.g. [1, 5]",
    "shuffle": "true, false, or how often, from 1 to 100",
    "evaluate_by": "a column, or a list of columns",
}
OF_ENCODER = "a folder"
UNKNOWN_KEY = ("extra_forbidden", "unexpected_keyword_argument")  # of pydantic's models and of dataclasses


def explained(error: ValidationError, keys: Sequence[str]) -> str:
    """One problem, a mistyped key before all others: the key, what was found, what was expected. A study has these ``keys``."""
    problems = sorted(_one_of_each(error), key=lambda problem: problem["type"] not in UNKNOWN_KEY)
    problem, kind = problems[0], problems[0]["type"]
    parts = list(problem["loc"])
    if parts[:1] == ["splits"]:
        del parts[1:2]  # which kind of splits it was taken for
    where = ".".join(map(str, parts))
    message = problem["msg"].removeprefix("Value error, ").rstrip(".")
    if kind in UNKNOWN_KEY:
        message = f"there is no such key; {suggestion(str(parts[-1]), _keys_at(parts, keys))}"
    elif kind == "missing":
        message = "is missing"
    elif _either(parts):
        message = f"expected {_either(parts)}, not {problem['input']!r}"[:200]
    elif kind == "model_type":
        expected = "a folder, {scheme: kfold} or {column: fold}" if where == "splits" else "a name, or {name: ...}"
        message = f"expected {expected}, not {problem['input']!r}"[:200]
    elif where and kind != "value_error":
        message = f"{message.replace('Input should be', 'expected')}, not {problem['input']!r}"[:200]
    more = len(problems) - 1
    return (f"{where}: " if where else "") + f"{message}" + (f" (and {more} more)." if more else ".")


def _one_of_each(error: ValidationError) -> list[Any]:
    """Problems of an error; of a key that may be of several kinds, the one of the whole value."""
    found: dict[Any, Any] = {}
    for problem in sorted(error.errors(), key=lambda one: len(one["loc"])):
        loc = problem["loc"]
        whole = next((loc[:end] for end in range(1, len(loc)) if _either(loc[:end])), None)
        found.setdefault(whole or (loc, len(found)), {**problem, "loc": whole or loc})
    return list(found.values())


def _either(parts: Sequence[Any]) -> str | None:
    """What may stand in that place of a study file, where it may be of several kinds."""
    if len(parts) == 1:
        return EITHER.get(str(parts[0]))
    # features: {ENCODER: ...}, of the study or of an external cohort
    return OF_ENCODER if len(parts) in (2, 4) and parts[-2] == "features" else None


def _keys_at(parts: Sequence[Any], keys: Sequence[str]) -> Sequence[str]:
    """Keys that are known in that place of a study file."""
    inner = {
        "task": [*TaskSpec.model_fields],
        "columns": [field.name for field in fields(Columns)],
        "splits": list(dict.fromkeys((*SplitSpec.model_fields, *ColumnSplits.model_fields))),
        "external": [*External.model_fields],
    }
    return keys if len(parts) == 1 else inner.get(str(parts[0]), [*Named.model_fields])

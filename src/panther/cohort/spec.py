"""What a study file, a model or a user says about a cohort: what is predicted, and how it is divided."""

from typing import Annotated, Any, Literal, TypeVar

import pandas as pd
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from panther.cohort.endpoints import (
    Parsed,
    make_classes,
    make_survival,
    parse_labels,
    parse_survival,
    survival_columns,
)
from panther.cohort.targets import Target
from panther.errors import InputError

STRICT = ConfigDict(extra="forbid", frozen=True)
Level = Literal["patient", "slide"]
Seed = Annotated[int, Field(ge=0, lt=2**63, strict=True)]


class Strict(BaseModel):
    """No key that is not known, and nothing changes."""

    model_config = STRICT


Spec = TypeVar("Spec", bound=Strict)


def checked(spec: type[Spec], **values: Any) -> Spec:
    """Value of a spec, or its first problem as a sentence."""
    try:
        return spec(**values)
    except ValidationError as error:
        problem = error.errors()[0]
        where = f"`{problem['loc'][0]}=`: " if problem["loc"] else ""
        said = problem["msg"].removeprefix("Value error, ").replace("Input should be", "expected")
        found = "" if problem["type"] == "value_error" else f", not {problem['input']!r}"
        sentence = f"{where}{said}{found}."
        raise InputError(sentence[0].upper() + sentence[1:]) from error


class TaskSpec(Strict):
    """What is predicted: a label column, or a survival endpoint."""

    label: str | None = None
    classes: tuple[str, ...] | None = None  # their order; all others are left out
    survival: str | None = None  # os, dss, dfi or pfi
    time: str | None = None  # columns of another name
    event: str | None = None  # 1 = event
    censorship: str | None = None  # 1 = censored
    level: Level = "patient"

    @model_validator(mode="after")
    def _one_of(self) -> "TaskSpec":
        survival = any(v is not None for v in (self.survival, self.time, self.event, self.censorship))
        if survival == (self.label is not None):
            raise ValueError("give either a label column or a survival endpoint")
        return self

    @property
    def is_survival(self) -> bool:
        """Whether times are predicted."""
        return self.label is None

    def parse(self, table: pd.DataFrame) -> Parsed:
        """Label, or time and event, of every row."""
        if self.label is not None:
            return parse_labels(table, self.label, self.classes)
        return parse_survival(table, *survival_columns(table, self.survival, self.time, self.event, self.censorship))

    def target(self, values: list[Any], source: str) -> Target:
        """Target of slides or patients from their values."""
        return make_survival(values, source) if self.is_survival else make_classes(values, self.classes, source)


class SplitSpec(Strict):
    """How a cohort is divided; see :data:`panther.cohort.splits.SCHEMES`."""

    scheme: str = "kfold"
    k: Annotated[int, Field(ge=2)] = 5
    shares: tuple[float, float, float] = (0.8, 0.1, 0.1)  # train, val, test of a holdout
    val: bool = False  # the next fold of a k-fold validates
    seed: Seed = 0
    seconds: Annotated[float, Field(gt=0)] = 30.0  # longest time for the solver of site-kfold

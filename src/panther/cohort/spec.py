"""Specification of a cohort: its target and its splits."""

from typing import Annotated, Any, Literal, TypeVar

import pandas as pd
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from panther.cohort.outcomes import (
    Parsed,
    parse_labels,
    parse_many_labels,
    parse_survival,
    parse_values,
    survival_columns,
)
from panther.cohort.targets import Kind, no_outcome
from panther.errors import InputError, format_invalid, plain

STRICT = ConfigDict(extra="forbid", frozen=True)
Level = Literal["slide", "patient"]
Seed = Annotated[int, Field(ge=0, lt=2**63, strict=True)]


class Strict(BaseModel):
    """A frozen model without unknown keys."""

    model_config = STRICT

    @model_validator(mode="before")
    @classmethod
    def _in_plain_numbers(cls, content: Any) -> Any:
        return plain(content)


Spec = TypeVar("Spec", bound=Strict)


def checked(spec: type[Spec], **values: Any) -> Spec:
    """Instance of ``spec``; the first problem is an error of one line."""
    try:
        return spec(**values)
    except ValidationError as error:
        raise InputError(format_invalid(error, known=spec.model_fields)) from error


class TaskSpec(Strict):
    """Target: a label column, a survival endpoint, a column of numbers, or several columns of yes and no."""

    label: str | None = None
    classes: tuple[str, ...] | None = None  # their order; all others are left out
    survival: str | None = None  # os, dss, dfi or pfi
    time: str | None = None  # columns of another name
    event: str | None = None  # 1 = event
    censorship: str | None = None  # 1 = censored
    value: str | None = None  # numbers
    labels: tuple[str, ...] | None = None  # each 0 or 1, empty where it is not known
    level: Level = "patient"

    @model_validator(mode="after")
    def _one_of(self) -> "TaskSpec":
        if len(self._kinds()) != 1:
            raise ValueError("expected one of label, survival, value and labels")
        if self.labels is not None and not self.labels:
            raise ValueError("labels: is empty; name the columns, each of 0 and 1")
        return self

    def _kinds(self) -> list[Kind]:
        """Kinds of targets that are named; exactly one in a valid task."""
        named: dict[Kind, tuple[Any, ...]] = {
            "classification": (self.label,),
            "survival": (self.survival, self.time, self.event, self.censorship),
            "regression": (self.value,),
            "labels": (self.labels,),
        }
        return [kind for kind, columns in named.items() if any(column is not None for column in columns)]

    @property
    def kind(self) -> Kind:
        """Kind of the target."""
        return self._kinds()[0]

    def parse(self, table: pd.DataFrame) -> Parsed:
        """Value of every row."""
        if self.label is not None:
            return parse_labels(table, self.label, self.classes)
        if self.value is not None:
            return parse_values(table, self.value)
        if self.labels is not None:
            return parse_many_labels(table, self.labels)
        columns = survival_columns(table, self.survival, self.time, self.event, self.censorship)
        return parse_survival(table, *columns, self.survival)


class NoOutcome(Strict):
    """Samples without a target, for splits that are only checked for leakage."""

    level: Level = "patient"

    def parse(self, table: pd.DataFrame) -> Parsed:
        """One class of all rows."""
        return Parsed(["samples"] * len(table), "no outcome", lambda values, _: no_outcome(len(values)))


class SplitSpec(Strict):
    """How a cohort is divided; see :data:`panther.cohort.splits.SCHEMES`."""

    scheme: Literal["kfold", "site-kfold", "holdout"] = "kfold"
    k: Annotated[int, Field(ge=2)] = 5
    shares: tuple[float, float, float] = (0.8, 0.1, 0.1)  # train, val, test of a holdout, of any sum
    val: bool = False  # the next fold of a k-fold validates
    seed: Seed = 0
    seconds: Annotated[float, Field(gt=0)] = 30.0  # longest time for the solver of site-kfold

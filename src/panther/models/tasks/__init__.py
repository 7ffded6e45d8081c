r"""Tasks: what a network's outputs mean, how they are taught and judged. With them no code asks "is this survival?".

Everything that a task learns (classes, time bins, units) is fixed by `fit` on the training target alone. A task is a frozen value
that can be written as plain settings and made again from them.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from panther.cohort.targets import Kind, Target
from panther.errors import InputError
from panther.models.tasks.classes import Classification, Grades
from panther.models.tasks.labels import ManyLabels
from panther.models.tasks.survival import CoxSurvival, DiscreteSurvival, RankingSurvival, check_survival
from panther.models.tasks.task import Prediction, Task, tasks
from panther.models.tasks.values import HuberError, SquaredError

__all__ = [
    "Classification",
    "CoxSurvival",
    "DiscreteSurvival",
    "Grades",
    "HuberError",
    "ManyLabels",
    "Prediction",
    "RankingSurvival",
    "SquaredError",
    "Task",
    "check_survival",
    "fit_task",
    "load_task",
    "tasks",
]
KINDS: dict[Kind, str] = {  # in words
    "classification": "classes",
    "survival": "survival times",
    "regression": "values",
    "labels": "several labels",
}


def fit_task(name: str, target: Target, **options: Any) -> Task[Any]:
    """Task of that loss for a training target; refuses a loss for another kind of target, and unknown options."""
    entry = tasks.entry(name)
    if not isinstance(target, entry.metadata.target):
        suitable = [e.name for e in tasks if isinstance(target, e.metadata.target)]
        raise InputError(
            f"The loss {name!r} does not fit a target of {KINDS[target.kind]}; use {' or '.join(suitable)}."
        )
    tasks.check_options(name, options)
    return entry.value.fit(target, **options)


def load_task(settings: Mapping[str, Any]) -> Task[Any]:
    """Task from its `settings()`, also after a trip through JSON."""
    kind = tasks[settings["loss"]]
    values = {f.name: settings[f.name] for f in fields(kind) if f.name in settings}  # type: ignore[arg-type]
    return kind(**{name: tuple(v) if isinstance(v, list) else v for name, v in values.items()})

r"""Tasks: what a network's outputs mean, how they are taught and judged. With them no code asks "is this survival?".

Everything that a task learns (classes, time bins) is fixed by `fit` on the training target alone. A task is a frozen value
that can be written as plain settings and made again from them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from panther.cohort.targets import Classes, Survival
from panther.errors import InputError
from panther.evaluation.metric_names import PRINTED
from panther.evaluation.metrics import classification_metrics
from panther.models.losses import balanced_weights, cross_entropy
from panther.models.survival_tasks import CoxSurvival, DiscreteSurvival, RankingSurvival, check_survival
from panther.models.task import Prediction, Task, tasks

__all__ = [
    "Classification",
    "CoxSurvival",
    "DiscreteSurvival",
    "Prediction",
    "RankingSurvival",
    "Task",
    "check_survival",
    "fit_task",
    "load_task",
    "tasks",
]


@tasks.register("cross-entropy", target=Classes, options=("class_weights",))
@dataclass(frozen=True)
class Classification(Task[Classes]):
    """One of K classes."""

    names: tuple[str, ...]
    class_weights: tuple[float, ...] | None = None
    name: ClassVar[str] = "cross-entropy"
    judged: ClassVar[tuple[str, ...]] = PRINTED[False]

    @classmethod
    def fit(cls, target: Classes, class_weights: str | tuple[float, ...] | None = None) -> Self:  # type: ignore[override]
        """Classes of the training part; `class_weights` may be "balanced" or one number per class."""
        counts = np.bincount(target.labels, minlength=len(target.names))
        if (counts > 0).sum() < 2:
            only = target.names[int(counts.argmax())] if counts.sum() else "none"
            raise InputError(f"All training samples have one class ({only}); a classifier needs at least two.")
        absent = [name for name, count in zip(target.names, counts, strict=True) if count == 0]
        if absent:
            raise InputError(
                f"No training sample has the class {', '.join(map(repr, absent))}, so it can never be predicted; "
                "split again stratified by the label, or leave the class out."
            )
        if class_weights == "balanced":
            class_weights = balanced_weights(target.labels, len(target.names))
        elif class_weights is not None and (
            isinstance(class_weights, str) or len(class_weights) != len(target.names) or min(class_weights) <= 0
        ):
            raise InputError(
                f"class_weights is {class_weights!r}; give 'balanced' or {len(target.names)} positive numbers, one per class."
            )
        return cls(tuple(target.names), None if class_weights is None else tuple(map(float, class_weights)))

    @property
    def n_outputs(self) -> int:
        """One logit per class."""
        return len(self.names)

    def encode(self, target: Classes) -> dict[str, Tensor]:
        """`label` (n,), in the training part's order of classes."""
        return {"label": torch.as_tensor(self._own_labels(target), dtype=torch.int64)}

    def _own_labels(self, target: Classes) -> np.ndarray:
        if tuple(target.names) == self.names:
            return target.labels
        unknown = sorted({target.names[k] for k in np.unique(target.labels)} - set(self.names))
        if unknown:
            raise InputError(
                f"The class {', '.join(map(repr, unknown))} was not trained on (known are {', '.join(self.names)}); "
                "map it to a known class or leave these samples out."
            )
        position = {name: k for k, name in enumerate(self.names)}
        return np.array([position[target.names[k]] for k in target.labels], np.int64)

    def decode(self, batch: Mapping[str, Tensor]) -> Classes:
        """Classes of a batch."""
        return Classes(self.names, batch["label"].cpu().numpy())

    def loss(self, logits: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """Cross-entropy."""
        weights = None if self.class_weights is None else torch.tensor(self.class_weights)
        return cross_entropy(logits, batch["label"], weights)

    def predict(self, logits: Tensor) -> dict[str, np.ndarray]:
        """`probabilities` (n, K)."""
        return {"probabilities": torch.softmax(logits.double(), -1).cpu().numpy()}

    def metrics(
        self, prediction: Prediction, target: Classes, reference: tuple[Prediction, Classes] | None = None
    ) -> dict[str, float]:
        """Balanced accuracy, weighted F1, quadratic kappa, AUROC, accuracy."""
        found = classification_metrics(self._own_labels(target), prediction["probabilities"])
        return {name: float(value) for name, value in found.items()}

    def judge(
        self,
        prediction: Prediction,
        target: Classes,
        reference: tuple[Prediction, Classes] | None = None,
        counts: np.ndarray | None = None,
    ) -> dict[str, np.ndarray]:
        """All but accuracy."""
        found = classification_metrics(self._own_labels(target), prediction["probabilities"], counts)
        return {name: found[name] for name in self.judged}


def fit_task(name: str, target: Classes | Survival, **options: Any) -> Task[Any]:
    """Task of that loss for a training target; refuses a loss for the other kind of target, and unknown options."""
    entry = tasks.entry(name)
    if not isinstance(target, entry.metadata.target):
        suitable = [e.name for e in tasks if isinstance(target, e.metadata.target)]
        raise InputError(f"The loss {name!r} does not fit a target of {_kind(target)}; use {' or '.join(suitable)}.")
    tasks.check_options(name, options)
    return entry.value.fit(target, **options)


def load_task(settings: Mapping[str, Any]) -> Task[Any]:
    """Task from its `settings()`, also after a trip through JSON."""
    kind = tasks[settings["loss"]]
    values = {f.name: settings[f.name] for f in fields(kind) if f.name in settings}  # type: ignore[arg-type]
    return kind(**{name: tuple(v) if isinstance(v, list) else v for name, v in values.items()})


def _kind(target: Classes | Survival) -> str:
    return "classes" if isinstance(target, Classes) else "survival times"

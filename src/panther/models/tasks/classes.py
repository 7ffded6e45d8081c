r"""Tasks of classes: one of K that have no order, or grades that have one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from panther.cohort.targets import Classes, Kind
from panther.errors import InputError
from panther.evaluation.metrics import classification_metrics
from panther.models.losses import balanced_weights, cross_entropy, grade_log_probabilities
from panther.models.tasks.task import Prediction, Task, tasks


@dataclass(frozen=True)
class ClassTask(Task[Classes]):
    """What losses of classes share: the probability of each, judged alike."""

    names: tuple[str, ...]
    class_weights: tuple[float, ...] | None = None
    kind: ClassVar[Kind] = "classification"

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

    def weights(self) -> Tensor | None:
        """Weight of each class (K,), where they differ."""
        return None if self.class_weights is None else torch.tensor(self.class_weights)

    @property
    def output_names(self) -> tuple[str, ...]:
        """The classes."""
        return self.names

    def numbers(self, prediction: Prediction) -> np.ndarray:
        """Probabilities (n, K)."""
        return prediction["probabilities"]

    def columns(self, prediction: Prediction) -> dict[str, Any]:
        """`predicted`, the likeliest class, and `probability_<class>`."""
        p = prediction["probabilities"]
        own = {"predicted": [self.names[k] for k in p.argmax(1)]}
        return own | {f"probability_{name}": p[:, k] for k, name in enumerate(self.names)}

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


@tasks.register("cross-entropy", target=Classes, options=("class_weights",))
@dataclass(frozen=True)
class Classification(ClassTask):
    """One of K classes."""

    name: ClassVar[str] = "cross-entropy"

    @property
    def n_outputs(self) -> int:
        """One logit per class."""
        return len(self.names)

    def loss(self, logits: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """Cross-entropy."""
        return cross_entropy(logits, batch["label"], self.weights())

    def predict(self, logits: Tensor) -> dict[str, np.ndarray]:
        """`probabilities` (n, K)."""
        return {"probabilities": torch.softmax(logits.double(), -1).cpu().numpy()}


@tasks.register("ordinal", target=Classes, options=("class_weights",))
@dataclass(frozen=True)
class Grades(ClassTask):
    """Classes in their order (grades): a cumulative link, see :func:`panther.models.losses.grade_log_probabilities`."""

    name: ClassVar[str] = "ordinal"

    @property
    def n_outputs(self) -> int:
        """A score, and one step for every grade above the second."""
        return len(self.names) - 1

    def loss(self, logits: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """Negative log-likelihood of the grades."""
        return cross_entropy(grade_log_probabilities(logits), batch["label"], self.weights())

    def predict(self, logits: Tensor) -> dict[str, np.ndarray]:
        """`probabilities` (n, K)."""
        return {"probabilities": grade_log_probabilities(logits.double()).exp().cpu().numpy()}

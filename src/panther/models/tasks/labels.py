r"""Task of several labels at once, each yes or no; what is not known of a sample teaches nothing and is not judged."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from panther.cohort.targets import Kind, Labels
from panther.errors import InputError
from panther.evaluation.metric_names import PRINTED, label_metric
from panther.evaluation.metrics import binary_auroc, mean_of_defined
from panther.models.tasks.task import Prediction, Task, tasks


@tasks.register("binary-cross-entropy", target=Labels, options=())
@dataclass(frozen=True)
class ManyLabels(Task[Labels]):
    """The probability of each label, by itself."""

    names: tuple[str, ...]
    name: ClassVar[str] = "binary-cross-entropy"
    kind: ClassVar[Kind] = "labels"

    @classmethod
    def fit(cls, target: Labels) -> Self:  # type: ignore[override]
        """Labels of the training part, which must have both of each."""
        for name, has, known in zip(target.names, target.positive, target.known, strict=True):
            if has in (0, known):
                raise InputError(
                    f"The training part does not have both, samples with and without, of the label {name!r}; leave it out, or split again."
                )
        return cls(tuple(target.names))

    @property
    def n_outputs(self) -> int:
        """One logit per label."""
        return len(self.names)

    @property
    def judged(self) -> tuple[str, ...]:
        """The mean over labels, and each label."""
        return (*PRINTED[self.kind], *map(label_metric, self.names))

    def encode(self, target: Labels) -> dict[str, Tensor]:
        """`labels` (n, L), NaN where one is not known."""
        if tuple(target.names) != self.names:
            raise InputError(f"The labels are {', '.join(target.names)}, but {', '.join(self.names)} were trained on.")
        return {"labels": torch.as_tensor(target.values, dtype=torch.float64)}

    def decode(self, batch: Mapping[str, Tensor]) -> Labels:
        """Labels of a batch."""
        return Labels(self.names, batch["labels"].cpu().numpy())

    def loss(self, logits: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        r"""Binary cross-entropy, the mean over what is known; a batch of which nothing is known gives 0, with gradients of 0."""
        labels = batch["labels"].to(logits)
        known = ~torch.isnan(labels)
        each = functional.binary_cross_entropy_with_logits(logits, labels.nan_to_num(), reduction="none")
        return (each * known).sum() / known.sum().clamp_min(1)

    def predict(self, logits: Tensor) -> dict[str, np.ndarray]:
        """`label_probabilities` (n, L); they do not add up to 1."""
        return {"label_probabilities": torch.sigmoid(logits.double()).cpu().numpy()}

    @property
    def output_names(self) -> tuple[str, ...]:
        """The labels."""
        return self.names

    def numbers(self, prediction: Prediction) -> np.ndarray:
        """Probabilities (n, L)."""
        return prediction["label_probabilities"]

    def columns(self, prediction: Prediction) -> dict[str, Any]:
        """`probability_<label>`."""
        return {f"probability_{name}": prediction["label_probabilities"][:, k] for k, name in enumerate(self.names)}

    def metrics(
        self, prediction: Prediction, target: Labels, reference: tuple[Prediction, Labels] | None = None
    ) -> dict[str, float]:
        """AUROC of each label, and their mean."""
        return {name: float(value) for name, value in self.judge(prediction, target).items()}

    def judge(
        self,
        prediction: Prediction,
        target: Labels,
        reference: tuple[Prediction, Labels] | None = None,
        counts: np.ndarray | None = None,
    ) -> dict[str, np.ndarray]:
        """AUROC of each label on those of whom it is known, and the mean over the labels that have one."""
        each = {}
        for k, name in enumerate(self.names):
            known = np.flatnonzero(~np.isnan(target.values[:, k]))
            own = None if counts is None else counts[..., known]
            score = prediction["label_probabilities"][known, k]
            each[label_metric(name)] = binary_auroc(target.values[known, k] == 1, score, own)
        return {"macro_auroc": mean_of_defined(np.stack(list(each.values()), -1)), **each}

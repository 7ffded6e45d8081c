r"""What a task is: what a network's outputs mean, how they are taught and judged."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
from torch import Tensor

from panther.cohort.targets import Classes, Kind, Labels, Survival, Values
from panther.evaluation.metric_names import PRINTED
from panther.registry import Registry

Prediction = Mapping[str, np.ndarray]  # first axis: samples
T = TypeVar("T", Classes, Survival, Values, Labels)


class Task(ABC, Generic[T]):
    """What outputs mean. `name` is what a study file says, e.g. ``loss: cox``."""

    name: ClassVar[str]
    compares: ClassVar[bool] = False  # the loss compares samples of a batch: one sample at a time teaches nothing
    kind: ClassVar[Kind]  # of its target

    @classmethod
    @abstractmethod
    def fit(cls, target: T, **options: Any) -> Self:
        """Task for this training target; refuses a target that nothing can be learnt from."""

    @property
    @abstractmethod
    def n_outputs(self) -> int:
        """Logits a sample."""

    @abstractmethod
    def encode(self, target: T) -> dict[str, Tensor]:
        """Target as tensors, first axis samples: the `batch` that `loss` is given."""

    @abstractmethod
    def decode(self, batch: Mapping[str, Tensor]) -> T:
        """Target again from its tensors."""

    @abstractmethod
    def loss(self, logits: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """Loss of logits (B, n_outputs), one number."""

    @abstractmethod
    def predict(self, logits: Tensor) -> dict[str, np.ndarray]:
        """Predictions as arrays, first axis samples."""

    @abstractmethod
    def columns(self, prediction: Prediction) -> dict[str, Any]:
        """Predictions as columns of a table."""

    @property
    @abstractmethod
    def output_names(self) -> tuple[str, ...]:
        """What the numbers of a prediction are: classes, labels, `risk`, or `value`."""

    @abstractmethod
    def numbers(self, prediction: Prediction) -> np.ndarray:
        """The numbers of predictions (n, len(output_names))."""

    @property
    def judged(self) -> tuple[str, ...]:
        """Metrics that get intervals and comparisons."""
        return PRINTED[self.kind]

    @abstractmethod
    def metrics(
        self, prediction: Prediction, target: T, reference: "tuple[Prediction, T] | None" = None
    ) -> dict[str, float]:
        """Judge predictions; `reference` are predictions and target of the training part, for metrics that need them."""

    @abstractmethod
    def judge(
        self,
        prediction: Prediction,
        target: T,
        reference: "tuple[Prediction, T] | None" = None,
        counts: np.ndarray | None = None,
    ) -> dict[str, np.ndarray]:
        """The metrics of `judged` only, NaN where one is not defined; `counts` (..., n) says how often each sample counts.

        One number for each of the counts, (...,), so that thousands of resamples are one call; without them each sample counts once.
        """

    def settings(self) -> dict[str, Any]:
        """Plain values from which :func:`load_task` makes this task again."""
        return {"loss": self.name, **asdict(self)}  # type: ignore[call-overload]


@dataclass(frozen=True)
class TaskInfo:
    """What is known of a task."""

    target: type[Any]  # what it is trained on: classes, survival, values, labels
    options: tuple[str, ...]  # names of the settings


tasks: Registry[type[Task[Any]], TaskInfo] = Registry("loss", TaskInfo)

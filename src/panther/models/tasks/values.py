r"""Tasks of numbers: squared error, or Huber's loss, which large errors move less.

A network learns the value in units of the training part's standard deviation about its mean, so that learning rates and Huber's threshold
mean the same for a percentage and for a count of cells; predictions are in the units of the table.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from panther.cohort.targets import Kind, Values
from panther.errors import InputError
from panther.evaluation.value_metrics import root_mean_square_error, value_metrics
from panther.limits import check_number
from panther.models.tasks.task import Prediction, Task, tasks


@dataclass(frozen=True)
class ValueTask(Task[Values]):
    """What losses of numbers share: one value, judged alike."""

    mean: float  # of the training part
    scale: float  # its standard deviation
    kind: ClassVar[Kind] = "regression"

    @property
    def n_outputs(self) -> int:
        """The value, in standard deviations about the training mean."""
        return 1

    def encode(self, target: Values) -> dict[str, Tensor]:
        """`value` (n,), as it is in the table."""
        return {"value": torch.as_tensor(target.values, dtype=torch.float64)}

    def decode(self, batch: Mapping[str, Tensor]) -> Values:
        """Values of a batch."""
        return Values(batch["value"].cpu().numpy())

    def standardised(self, batch: Mapping[str, Tensor], like: Tensor) -> Tensor:
        """Values of a batch (B,) as the network learns them."""
        return ((batch["value"] - self.mean) / self.scale).to(like)

    def predict(self, logits: Tensor) -> dict[str, np.ndarray]:
        """`value` (n,), in the units of the table."""
        return {"value": self.mean + self.scale * logits.double().reshape(-1).cpu().numpy()}

    @property
    def output_names(self) -> tuple[str, ...]:
        """The value."""
        return ("value",)

    def numbers(self, prediction: Prediction) -> np.ndarray:
        """Values (n, 1)."""
        return prediction["value"][:, None]

    def columns(self, prediction: Prediction) -> dict[str, Any]:
        """`predicted`."""
        return {"predicted": prediction["value"]}

    def metrics(
        self, prediction: Prediction, target: Values, reference: tuple[Prediction, Values] | None = None
    ) -> dict[str, float]:
        """Both correlations, R2, mean absolute and root mean square error."""
        found = self.judge(prediction, target)
        found["rmse"] = root_mean_square_error(target.values, prediction["value"])
        return {name: float(value) for name, value in found.items()}

    def judge(
        self,
        prediction: Prediction,
        target: Values,
        reference: tuple[Prediction, Values] | None = None,
        counts: np.ndarray | None = None,
    ) -> dict[str, np.ndarray]:
        """All but the root mean square error."""
        return value_metrics(target.values, prediction["value"], counts)


def _moments(target: Values) -> tuple[float, float]:
    """Mean and standard deviation of the training values; refuses values that nothing can be learnt from."""
    values = np.asarray(target.values, np.float64)
    if len(values) == 0 or not np.isfinite(values).all():
        raise InputError("A training sample has no finite value; leave it out or fill it in.")
    scale = float(values.std())
    if scale == 0:
        raise InputError(f"All {len(values)} training samples have the value {values[0]:g}; there is nothing to learn.")
    return float(values.mean()), scale


@tasks.register("mse", target=Values, options=())
@dataclass(frozen=True)
class SquaredError(ValueTask):
    """Mean squared error."""

    name: ClassVar[str] = "mse"

    @classmethod
    def fit(cls, target: Values) -> Self:  # type: ignore[override]
        """Units of the training part."""
        return cls(*_moments(target))

    def loss(self, logits: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """Squared error in units of the training variance."""
        return functional.mse_loss(logits.reshape(-1), self.standardised(batch, logits))


@tasks.register("huber", target=Values, options=("delta",))
@dataclass(frozen=True)
class HuberError(ValueTask):
    """Huber's loss: squared where errors are small, absolute where they are large."""

    delta: float = 1.0  # training standard deviations from which on an error counts as large
    name: ClassVar[str] = "huber"

    @classmethod
    def fit(cls, target: Values, delta: float = 1.0) -> Self:  # type: ignore[override]
        """Units of the training part."""
        check_number("delta", delta, 0, above=True)
        return cls(*_moments(target), float(delta))

    def loss(self, logits: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """Huber's loss in units of the training variance."""
        return functional.huber_loss(logits.reshape(-1), self.standardised(batch, logits), delta=self.delta)

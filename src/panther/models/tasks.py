"""What a task is: what a network's outputs mean, how they are taught and judged.

Tasks of classes: one of K that have no order, or grades that have one.

Survival tasks: Cox, discrete time and ranking.

Tasks of numbers: squared error, or Huber's loss, which large errors move less.

A network learns the value in units of the training part's standard deviation about its mean, so that learning rates and Huber's threshold
mean the same for a percentage and for a count of cells; predictions are in the units of the table.

Task of several labels at once, each yes or no; what is not known of a sample teaches nothing and is not judged.

Tasks: what a network's outputs mean, how they are taught and judged. With them no code asks "is this survival?".

Everything that a task learns (classes, time bins, units) is fixed by `fit` on the training target alone. A task is a frozen value
that can be written as plain settings and made again from them.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from panther.cohort.targets import Classes, Kind, Labels, Survival, Target, Values
from panther.errors import InputError, check_number
from panther.evaluation import survival_metrics
from panther.evaluation.metrics import (
    PRINTED,
    binary_auroc,
    classification_metrics,
    label_metric,
    mean_of_defined,
    root_mean_square_error,
    value_metrics,
)
from panther.models.losses import (
    balanced_weights,
    cox,
    cross_entropy,
    digitise,
    discrete_nll,
    grade_log_probabilities,
    log_survival_from,
    ranking,
    risk_from_hazards,
    time_bins,
)
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


class SurvivalTask(Task[Survival]):
    """What the survival losses share: one risk a patient, judged by the c-index."""

    kind: ClassVar[Kind] = "survival"

    @property
    def n_outputs(self) -> int:
        """One log risk."""
        return 1

    def encode(self, target: Survival) -> dict[str, Tensor]:
        """`time` and `event`, (n,)."""
        # float64: days differ in the last digit where float32 would tie them
        return {
            "time": torch.as_tensor(target.time, dtype=torch.float64),
            "event": torch.as_tensor(target.event, dtype=torch.bool),
        }

    def decode(self, batch: Mapping[str, Tensor]) -> Survival:
        """Time and event of a batch."""
        return Survival(batch["time"].cpu().numpy(), batch["event"].cpu().numpy())

    def predict(self, logits: Tensor) -> dict[str, np.ndarray]:
        """`risk` (n,)."""
        return {"risk": logits.double().reshape(-1).cpu().numpy()}

    @property
    def output_names(self) -> tuple[str, ...]:
        """The risk."""
        return ("risk",)

    def numbers(self, prediction: Prediction) -> np.ndarray:
        """Risks (n, 1)."""
        return prediction["risk"][:, None]

    def columns(self, prediction: Prediction) -> dict[str, Any]:
        """`risk`."""
        return {"risk": prediction["risk"]}

    def survival_at(
        self, prediction: Prediction, times: np.ndarray, reference: tuple[Prediction, Survival]
    ) -> np.ndarray | None:
        """Predicted survival (n, len(times)); None where the loss defines none."""
        return None

    def metrics(
        self, prediction: Prediction, target: Survival, reference: tuple[Prediction, Survival] | None = None
    ) -> dict[str, float]:
        """c-index; with a reference also Uno's, the mean time-dependent AUC and, where survival is predicted, the integrated Brier score."""
        found = {name: float(value) for name, value in self.judge(prediction, target, reference).items()}
        if reference is None:
            return {"c_index": found["c_index"]}
        outcome, known = (target.time, target.event), (reference[1].time, reference[1].event)
        times = survival_metrics.evaluation_times(outcome, known)
        found["time_auc"] = survival_metrics.time_dependent_auc(outcome, prediction["risk"], times, known)[1]
        survival = self.survival_at(prediction, times, reference)
        if survival is not None:
            found["integrated_brier"] = survival_metrics.integrated_brier(outcome, survival, times, known)
        return found

    def judge(
        self,
        prediction: Prediction,
        target: Survival,
        reference: tuple[Prediction, Survival] | None = None,
        counts: np.ndarray | None = None,
    ) -> dict[str, np.ndarray]:
        """Both c-indices from one count of the pairs; Uno's needs the reference's censoring."""
        pairs = survival_metrics.comparable_pairs(target.time, target.event, prediction["risk"], counts)
        unknown = np.full(len(pairs.index), np.nan)
        known = None if reference is None else (reference[1].time, reference[1].event)
        weight = unknown if known is None else survival_metrics.uno_weights(target.time[pairs.index], known)
        return {"c_index": pairs.concordance(), "c_index_uno": pairs.concordance(weight)}


@tasks.register("cox", target=Survival, options=("ties",))
@dataclass(frozen=True)
class CoxSurvival(SurvivalTask):
    """Proportional hazards."""

    ties: str = "efron"
    name: ClassVar[str] = "cox"
    compares: ClassVar[bool] = True

    @classmethod
    def fit(cls, target: Survival, ties: str = "efron") -> Self:  # type: ignore[override]
        """Nothing to learn; the target is checked."""
        check_survival(target)
        return cls(ties)

    def loss(self, logits: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """Negative log partial likelihood within the batch."""
        return cox(logits, batch["time"], batch["event"], self.ties)

    def survival_at(
        self, prediction: Prediction, times: np.ndarray, reference: tuple[Prediction, Survival]
    ) -> np.ndarray:
        """exp(-H0(t) e^eta) with Breslow's baseline of the training part."""
        log_risk, train = reference[0]["risk"], reference[1]
        shift = log_risk.mean()  # the baseline belongs to the mean risk: exp() stays in range
        knots, hazard = survival_metrics.breslow_baseline(train.time, train.event, log_risk - shift)
        with np.errstate(over="ignore"):
            rate = np.exp(prediction["risk"] - shift)[:, None]
            return np.exp(-np.minimum(survival_metrics.step(knots, hazard, times, before=0.0) * rate, 700.0))


@tasks.register("nll", target=Survival, options=("n_bins", "alpha", "on_edge"))
@dataclass(frozen=True)
class DiscreteSurvival(SurvivalTask):
    """Hazards of discrete time bins; one patient at a time can teach it."""

    edges: tuple[float, ...]  # inner edges, T - 1
    alpha: float = 0.5
    on_edge: str = "later"  # bin of a time that lies on an edge, or "earlier"
    name: ClassVar[str] = "nll"

    @classmethod
    def fit(cls, target: Survival, n_bins: int = 4, alpha: float = 0.5, on_edge: str = "later") -> Self:  # type: ignore[override]
        """Bins from quantiles of the uncensored training times."""
        check_survival(target)
        if on_edge not in ("later", "earlier"):
            raise InputError(
                f"on_edge is {on_edge!r}; a time on the edge of two bins belongs to the later or the earlier."
            )
        if not 0 <= alpha < 1:
            raise InputError(f"alpha is {alpha}; it weighs the uncensored and lies in [0, 1).")
        edges = time_bins(target.time, target.event, n_bins)
        if len(edges) < n_bins - 1:
            warnings.warn(
                f"The events have too few distinct times for {n_bins} bins; {len(edges) + 1} are used.", stacklevel=2
            )
        return cls(tuple(map(float, edges)), alpha, on_edge)

    @property
    def n_outputs(self) -> int:
        """One logit per bin."""
        return len(self.edges) + 1

    def encode(self, target: Survival) -> dict[str, Tensor]:
        """`bin`, `event`, and `time` for those who want it, (n,)."""
        bins = digitise(target.time, np.array(self.edges), self.on_edge)
        return {**super().encode(target), "bin": torch.as_tensor(bins)}

    def loss(self, logits: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """Discrete-time negative log-likelihood."""
        return discrete_nll(logits, batch["bin"], batch["event"], self.alpha)

    def predict(self, logits: Tensor) -> dict[str, np.ndarray]:
        """`risk` (n,), and `survival` (n, T) after each bin."""
        logits = logits.double()
        return {
            "risk": risk_from_hazards(logits).cpu().numpy(),
            "survival": log_survival_from(logits).exp().cpu().numpy(),
        }

    def survival_at(
        self, prediction: Prediction, times: np.ndarray, reference: tuple[Prediction, Survival]
    ) -> np.ndarray:
        """Survival between the edges of bins by straight lines, from 1 at time 0; the last bin ends with the training follow-up."""
        end = max(float(reference[1].time.max()), self.edges[-1] * (1 + 1e-9))
        knots = np.array([0.0, *self.edges, end])
        known = np.concatenate([np.ones((len(prediction["survival"]), 1)), prediction["survival"]], 1)
        return np.array([np.interp(times, knots, row) for row in known]).reshape(len(known), len(times))


@tasks.register("ranking", target=Survival, options=("tied_times",))
@dataclass(frozen=True)
class RankingSurvival(SurvivalTask):
    """Order of patients only; it predicts no survival curve."""

    tied_times: bool = True  # an event and a censoring at one time are comparable
    name: ClassVar[str] = "ranking"
    compares: ClassVar[bool] = True

    @classmethod
    def fit(cls, target: Survival, tied_times: bool = True) -> Self:  # type: ignore[override]
        """Nothing to learn; the target is checked."""
        check_survival(target)
        return cls(tied_times)

    def loss(self, logits: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """Smooth 1 - c-index within the batch."""
        return ranking(logits, batch["time"], batch["event"], self.tied_times)


def check_survival(target: Survival, what: str = "training") -> None:
    """Refuse a target that no survival model can be fitted to, or judged on."""
    time = np.asarray(target.time, np.float64)
    if len(time) == 0:
        raise InputError(f"There are no {what} patients with a survival time; check the table and the split.")
    if not np.isfinite(time).all():
        raise InputError(
            f"{int((~np.isfinite(time)).sum())} {what} patients have no finite survival time; leave them out or fill it in."
        )
    if (time <= 0).any():
        raise InputError(
            f"{int((time <= 0).sum())} {what} patients have a survival time of {time.min():g}; times must be above 0, so mend them or leave them out."
        )
    if not np.asarray(target.event).any():
        raise InputError(
            f"None of the {len(time)} {what} patients has an event, so there is nothing to learn from; "
            "check the censorship column (1 = censored) or choose other folds."
        )


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

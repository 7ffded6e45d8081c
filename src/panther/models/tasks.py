"""Tasks: the meaning of a network's outputs, their loss and their metrics, so that no other code distinguishes kinds of targets.

Everything that a task learns (classes, time bins, units) is fixed by `fit` on the training target alone. A task is a frozen value
that can be written as plain settings and restored from them.

Regression is standardised: the network predicts (value - mean) / standard deviation of the training part, so that learning rates mean the same
for a percentage and for a count of cells; predictions are in the units of the table.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from panther.cohort.outcomes import natural_order
from panther.cohort.targets import Classes, Kind, Labels, Survival, Target, Values
from panther.errors import InputError, check_choice, listed
from panther.evaluation import metrics, survival_metrics
from panther.models import losses
from panther.models.blocks import trial
from panther.registry import Registry, Settings

Prediction = Mapping[str, np.ndarray]  # first axis: samples
Reference = tuple[Prediction, Any] | None  # predictions and target of the training part
Counts = np.ndarray | None  # (..., n), how often each sample counts
Scores = dict[str, np.ndarray]
KINDS: dict[Kind, str] = {  # for messages
    "classification": "classes",
    "survival": "survival times",
    "regression": "values",
    "labels": "several labels",
}


class Task(ABC):
    """A loss, its predictions and their metrics. `name` is that of the loss in a study file, e.g. ``loss: cox``."""

    name: ClassVar[str]
    kind: ClassVar[Kind]  # of the target
    names: tuple[str, ...]  # of the predicted numbers: classes, labels, `risk`, or `value`
    output: ClassVar[str]  # key of a prediction: the array of these numbers
    compares: ClassVar[bool] = False  # the loss compares samples of a batch: batches of one sample have no gradient

    @classmethod
    @abstractmethod
    def fit(cls, target: Any, **options: Any) -> Self:
        """Task of a training target; constant targets are refused."""

    @property
    def n_outputs(self) -> int:
        """Logits per sample."""
        return len(self.names)

    @abstractmethod
    def encode(self, target: Any) -> dict[str, Tensor]:
        """Target as tensors, first axis samples: the `batch` of `loss`."""

    @abstractmethod
    def decode(self, batch: Mapping[str, Tensor]) -> Target:
        """Target from its tensors."""

    @abstractmethod
    def loss(self, logits: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """Loss of logits (B, n_outputs), a scalar."""

    @abstractmethod
    def predict(self, logits: Tensor) -> dict[str, np.ndarray]:
        """Predictions as arrays, first axis samples."""

    def columns(self, prediction: Prediction) -> dict[str, Any]:
        """Predictions as columns of a table."""
        return {f"probability_{name}": p for name, p in zip(self.names, prediction[self.output].T, strict=True)}

    @abstractmethod
    def judge(self, prediction: Prediction, target: Any, reference: Reference = None, counts: Counts = None) -> Scores:
        """Metrics of `judged`, NaN where undefined; `counts` (..., n) are the frequencies of the samples, 1 by default.

        Each metric has shape (...,), so that thousands of resamples are one call.
        """

    def metrics(self, prediction: Prediction, target: Any, reference: Reference = None) -> dict[str, float]:
        """All metrics of predictions, also those without intervals; some need the reference."""
        return {name: float(value) for name, value in self.judge(prediction, target, reference).items()}

    @property
    def judged(self) -> tuple[str, ...]:
        """Metrics with intervals and comparisons."""
        return metrics.PRINTED[self.kind]

    @property
    def is_ordered(self) -> bool:
        """Whether it predicts grades: classes with the loss `ordinal`, or that are all numbers."""
        return all(natural_order(name)[0] == 0 for name in self.names)

    def numbers(self, prediction: Prediction) -> np.ndarray:
        """The numbers of predictions (n, len(names))."""
        return prediction[self.output].reshape(-1, len(self.names))

    def settings(self) -> dict[str, Any]:
        """Plain values from which :func:`load_task` restores this task."""
        return {"loss": self.name, **asdict(self)}  # type: ignore[call-overload]


tasks: Registry[type[Task], Settings] = Registry("loss", Settings)


def fit_task(name: str, target: Target, **options: Any) -> Any:
    """Task of a loss for a training target; losses of other kinds of targets and unknown options are refused."""
    if tasks[name].kind != target.kind:
        suitable = " or ".join(loss_names(target.kind))
        raise InputError(f"The loss {name!r} does not fit a target of {KINDS[target.kind]}; use {suitable}")
    tasks.check_options(name, options)
    return tasks[name].fit(target, **options)


# for checks of settings before the data are read
_EXAMPLES: dict[Kind, Target] = {
    "classification": Classes(("a", "b"), np.array([0, 1] * 4)),
    "survival": Survival(np.arange(1.0, 65.0), np.ones(64, bool)),
    "regression": Values(np.arange(8.0)),
    "labels": Labels(("a", "b"), np.array([[0.0, 1.0], [1.0, 0.0]] * 4)),
}


def loss_names(kind: Kind | None = None) -> list[str]:
    """Losses for a kind of target, or all."""
    return [entry.name for entry in tasks if kind in (None, entry.value.kind)]


def check_loss(name: str, options: Mapping[str, Any], kind: Kind) -> None:
    """Refuse an unknown loss, a loss for another kind of target, and unknown settings."""
    with trial():
        fit_task(name, _EXAMPLES[kind], **options)


def load_task(settings: Mapping[str, Any]) -> Task:
    """Task from its `settings()`, also after a round trip through JSON."""
    task = tasks[settings["loss"]]
    values = {f.name: settings[f.name] for f in fields(task) if f.name in settings}  # type: ignore[arg-type]
    return task(**{name: tuple(v) if isinstance(v, list) else v for name, v in values.items()})


@dataclass(frozen=True)
class ClassTask(Task):
    """Base of classifiers: predictions are the probabilities of the classes."""

    names: tuple[str, ...]
    class_weights: tuple[float, ...] | None = None
    kind: ClassVar[Kind] = "classification"
    output: ClassVar[str] = "probabilities"

    @classmethod
    def fit(cls, target: Classes, class_weights: str | None = None) -> Self:  # type: ignore[override]
        """Classes of the training part; with `class_weights` "balanced" every class counts the same in the loss."""
        counts, names = target.counts(), tuple(target.names)
        if target.only_class() is not None or not len(target):
            raise InputError(f"All training samples have one class ({target.only_class()}), expected at least two")
        if absent := [name for name, count in counts.items() if count == 0]:
            raise InputError(f"No training sample has the class {listed(absent)}; split stratified, or leave it out")
        if class_weights is None:
            return cls(names)
        check_choice("class_weights", class_weights, ("balanced",))
        return cls(names, tuple(len(target) / (len(names) * count) for count in counts.values()))

    def encode(self, target: Classes) -> dict[str, Tensor]:
        """`label` (n,), in the training part's order of classes."""
        return {"label": torch.as_tensor(self._labels(target), dtype=torch.int64)}

    def _labels(self, target: Classes) -> np.ndarray:
        if tuple(target.names) == self.names:
            return target.labels
        if unknown := sorted({target.names[k] for k in np.unique(target.labels)} - set(self.names)):
            raise InputError(f"The class {unknown[0]!r} was not trained on, expected one of {listed(self.names)}")
        return np.array([self.names.index(target.names[k]) for k in target.labels], np.int64)

    def decode(self, batch: Mapping[str, Tensor]) -> Classes:
        """Classes of a batch."""
        return Classes(self.names, batch["label"].cpu().numpy())

    def cross_entropy(self, log_probabilities: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        r"""Cross-entropy of logits (B, K), weighted by class: :math:`-\sum_i w_{y_i} \log \mathrm{softmax}(l_i)_{y_i} / \sum_i w_{y_i}`."""
        weight = None if self.class_weights is None else log_probabilities.new_tensor(self.class_weights)
        return functional.cross_entropy(log_probabilities, batch["label"], weight=weight)

    def columns(self, prediction: Prediction) -> dict[str, Any]:
        """`predicted`, the likeliest class, and `probability_<class>`."""
        predicted = [self.names[k] for k in prediction["probabilities"].argmax(1)]
        return {"predicted": predicted, **super().columns(prediction)}

    def judge(
        self, prediction: Prediction, target: Classes, reference: Reference = None, counts: Counts = None
    ) -> Scores:
        """Balanced accuracy, weighted F1, quadratic kappa, AUROC."""
        values = metrics.classification_metrics(self._labels(target), prediction["probabilities"], counts)
        return {name: values[name] for name in self.judged}

    def metrics(self, prediction: Prediction, target: Classes, reference: Reference = None) -> dict[str, float]:
        """The metrics of `judge`, and accuracy."""
        values = metrics.classification_metrics(self._labels(target), prediction["probabilities"])
        return {name: float(value) for name, value in values.items()}


@tasks.register("cross-entropy", options=("class_weights",))
@dataclass(frozen=True)
class Classification(ClassTask):
    """One of K classes."""

    name: ClassVar[str] = "cross-entropy"

    def loss(self, logits: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """Cross-entropy."""
        return self.cross_entropy(logits, batch)

    def predict(self, logits: Tensor) -> dict[str, np.ndarray]:
        """`probabilities` (n, K)."""
        return {"probabilities": torch.softmax(logits.double(), -1).cpu().numpy()}


@tasks.register("ordinal", options=("class_weights",))
@dataclass(frozen=True)
class Grades(ClassTask):
    """Classes in their order (grades): a cumulative link, see :func:`panther.models.losses.grade_log_probabilities`."""

    name: ClassVar[str] = "ordinal"
    is_ordered = True

    @property
    def n_outputs(self) -> int:
        """A score, and a step for each grade above the second."""
        return len(self.names) - 1

    def loss(self, logits: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """Negative log-likelihood of the grades."""
        return self.cross_entropy(losses.grade_log_probabilities(logits), batch)

    def predict(self, logits: Tensor) -> dict[str, np.ndarray]:
        """`probabilities` (n, K)."""
        return {"probabilities": losses.grade_log_probabilities(logits.double()).exp().cpu().numpy()}


class SurvivalTask(Task):
    """Base of survival models: the prediction is a log risk, judged by the c-index."""

    kind: ClassVar[Kind] = "survival"
    output: ClassVar[str] = "risk"
    names = ("risk",)

    @classmethod
    def fit(cls, target: Survival, **options: Any) -> Self:
        """Task with these settings; the target is only checked."""
        check_survival(target)
        return cls(**options)

    def encode(self, target: Survival) -> dict[str, Tensor]:
        """`time` and `event`, (n,)."""
        # float64: days differ in the last digit where float32 would tie them
        time = torch.as_tensor(target.time, dtype=torch.float64)
        return {"time": time, "event": torch.as_tensor(target.event, dtype=torch.bool)}

    def decode(self, batch: Mapping[str, Tensor]) -> Survival:
        """Time and event of a batch."""
        return Survival(batch["time"].cpu().numpy(), batch["event"].cpu().numpy())

    def predict(self, logits: Tensor) -> dict[str, np.ndarray]:
        """`risk` (n,)."""
        return {"risk": logits.double().reshape(-1).cpu().numpy()}

    def columns(self, prediction: Prediction) -> dict[str, Any]:
        """`risk`."""
        return {"risk": prediction["risk"]}

    def survival_at(
        self, prediction: Prediction, times: np.ndarray, reference: tuple[Prediction, Survival]
    ) -> np.ndarray | None:
        """Predicted survival (n, len(times)); None for losses that predict none."""
        return None

    def metrics(self, prediction: Prediction, target: Survival, reference: Reference = None) -> dict[str, float]:
        """c-index; with a reference also Uno's, the mean time-dependent AUC and, where survival is predicted, the integrated Brier score."""
        values = super().metrics(prediction, target, reference)
        if reference is None:
            return {"c_index": values["c_index"]}
        outcome, train = (target.time, target.event), (reference[1].time, reference[1].event)
        times = survival_metrics.evaluation_times(outcome, train)
        values["time_auc"] = survival_metrics.time_dependent_auc(outcome, prediction["risk"], times, train)[1]
        survival = self.survival_at(prediction, times, reference)
        if survival is not None:
            values["integrated_brier"] = survival_metrics.integrated_brier(outcome, survival, times, train)
        return values

    def judge(
        self, prediction: Prediction, target: Survival, reference: Reference = None, counts: Counts = None
    ) -> Scores:
        """Both c-indices from one count of the pairs; Uno's needs the reference's censoring."""
        pairs = survival_metrics.comparable_pairs(target.time, target.event, prediction["risk"], counts)
        weight = np.full(len(pairs.index), np.nan)
        if reference is not None:
            weight = survival_metrics.uno_weights(target.time[pairs.index], (reference[1].time, reference[1].event))
        return {"c_index": pairs.concordance(), "c_index_uno": pairs.concordance(weight)}


@tasks.register("cox", options=("ties",))
@dataclass(frozen=True)
class CoxSurvival(SurvivalTask):
    """Proportional hazards."""

    ties: str = "efron"
    name: ClassVar[str] = "cox"
    compares: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_choice("treatment of ties", self.ties, losses.TIES)

    def loss(self, logits: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """Negative log partial likelihood within the batch."""
        return losses.cox(logits, batch["time"], batch["event"], self.ties)

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


@tasks.register("nll", options=("n_bins", "alpha", "on_edge"))
@dataclass(frozen=True)
class DiscreteSurvival(SurvivalTask):
    """Hazards of discrete time bins; batches of one patient are possible."""

    edges: tuple[float, ...]  # inner edges, T - 1
    alpha: float = 0.5
    on_edge: str = "later"  # bin of a time on an edge: "later" or "earlier"
    name: ClassVar[str] = "nll"

    @classmethod
    def fit(cls, target: Survival, n_bins: int = 4, alpha: float = 0.5, on_edge: str = "later") -> Self:  # type: ignore[override]
        """Bins from quantiles of the uncensored training times."""
        check_survival(target)
        check_choice("on_edge", on_edge, ("later", "earlier"))
        if not 0 <= alpha < 1:
            raise InputError(f"alpha: {alpha}, expected 0 to below 1")
        edges = losses.time_bins(target.time, target.event, n_bins)
        if len(edges) < n_bins - 1:
            warnings.warn(
                f"The events have too few distinct times: {len(edges) + 1} bins instead of {n_bins}.", stacklevel=2
            )
        return cls(tuple(map(float, edges)), alpha, on_edge)

    @property
    def n_outputs(self) -> int:
        """One logit per bin."""
        return len(self.edges) + 1

    def encode(self, target: Survival) -> dict[str, Tensor]:
        """`bin`, `event` and `time`, (n,)."""
        bins = losses.digitise(target.time, np.array(self.edges), self.on_edge)
        return {**super().encode(target), "bin": torch.as_tensor(bins)}

    def loss(self, logits: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """Discrete-time negative log-likelihood."""
        return losses.discrete_nll(logits, batch["bin"], batch["event"], self.alpha)

    def predict(self, logits: Tensor) -> dict[str, np.ndarray]:
        """`risk` (n,), and `survival` (n, T) after each bin."""
        survival = losses.log_survival_from(logits.double()).exp()
        return {"risk": losses.risk_from_hazards(logits.double()).cpu().numpy(), "survival": survival.cpu().numpy()}

    def survival_at(
        self, prediction: Prediction, times: np.ndarray, reference: tuple[Prediction, Survival]
    ) -> np.ndarray:
        """Survival at the edges, interpolated linearly, from 1 at time 0; the last bin ends with the training follow-up."""
        end = max(float(reference[1].time.max()), self.edges[-1] * (1 + 1e-9))
        knots = np.array([0.0, *self.edges, end])
        curves = np.concatenate([np.ones((len(prediction["survival"]), 1)), prediction["survival"]], 1)
        return np.array([np.interp(times, knots, curve) for curve in curves]).reshape(len(curves), len(times))


@tasks.register("ranking", options=("tied_times",))
@dataclass(frozen=True)
class RankingSurvival(SurvivalTask):
    """Pairwise ranking of patients; it predicts no survival curves."""

    tied_times: bool = True  # an event and a censoring at one time are comparable
    name: ClassVar[str] = "ranking"
    compares: ClassVar[bool] = True

    def loss(self, logits: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """Smooth 1 - c-index within the batch."""
        return losses.ranking(logits, batch["time"], batch["event"], self.tied_times)


def check_survival(target: Survival) -> None:
    """Refuse a target that no survival model can be fitted to."""
    if not target.event.any():
        raise InputError(f"None of the {len(target)} training patients has an event; check the column (1 = censored?)")


@tasks.register("mse")
@dataclass(frozen=True)
class SquaredError(Task):
    """Regression by the mean squared error."""

    mean: float  # of the training part
    scale: float  # its standard deviation
    name: ClassVar[str] = "mse"
    kind: ClassVar[Kind] = "regression"
    output: ClassVar[str] = "value"
    names = ("value",)

    @classmethod
    def fit(cls, target: Values) -> Self:  # type: ignore[override]
        """Mean and standard deviation of the training part; constant values are refused."""
        values = np.asarray(target.values, np.float64)
        if values.std() == 0:
            raise InputError(f"All {len(values)} training samples have the value {values[0]:g}, expected several")
        return cls(float(values.mean()), float(values.std()))

    def encode(self, target: Values) -> dict[str, Tensor]:
        """`value` (n,), in the units of the table."""
        return {"value": torch.as_tensor(target.values, dtype=torch.float64)}

    def decode(self, batch: Mapping[str, Tensor]) -> Values:
        """Values of a batch."""
        return Values(batch["value"].cpu().numpy())

    def loss(self, logits: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """Squared error in units of the training variance."""
        return functional.mse_loss(logits.reshape(-1), ((batch["value"] - self.mean) / self.scale).to(logits))

    def predict(self, logits: Tensor) -> dict[str, np.ndarray]:
        """`value` (n,), in the units of the table."""
        return {"value": self.mean + self.scale * logits.double().reshape(-1).cpu().numpy()}

    def columns(self, prediction: Prediction) -> dict[str, Any]:
        """`predicted`."""
        return {"predicted": prediction["value"]}

    def judge(
        self, prediction: Prediction, target: Values, reference: Reference = None, counts: Counts = None
    ) -> Scores:
        """Both correlations, R2 and the mean absolute error."""
        return metrics.value_metrics(target.values, prediction["value"], counts)

    def metrics(self, prediction: Prediction, target: Values, reference: Reference = None) -> dict[str, float]:
        """The metrics of `judge`, and the root mean square error."""
        squares = (target.values - prediction["value"]) ** 2
        return {
            **super().metrics(prediction, target),
            "rmse": float(np.sqrt(squares.mean())) if len(squares) else np.nan,
        }


@tasks.register("binary-cross-entropy")
@dataclass(frozen=True)
class ManyLabels(Task):
    """Several binary labels; unknown labels (NaN) of a sample are left out of the loss and of the metrics."""

    names: tuple[str, ...]
    name: ClassVar[str] = "binary-cross-entropy"
    kind: ClassVar[Kind] = "labels"
    output: ClassVar[str] = "label_probabilities"

    @classmethod
    def fit(cls, target: Labels) -> Self:  # type: ignore[override]
        """Labels of the training part, each with positive and negative samples."""
        if one_sided := target.one_sided():
            raise InputError(f"The training part does not have both, yes and no, of the label {one_sided[0]!r}")
        return cls(tuple(target.names))

    @property
    def judged(self) -> tuple[str, ...]:
        """Mean AUROC, and that of each label."""
        return (*metrics.PRINTED[self.kind], *map(metrics.label_metric, self.names))

    def encode(self, target: Labels) -> dict[str, Tensor]:
        """`labels` (n, L), NaN where unknown."""
        if tuple(target.names) != self.names:
            raise InputError(f"The labels are {listed(target.names)}, expected {listed(self.names)} as in the training")
        return {"labels": torch.as_tensor(target.values, dtype=torch.float64)}

    def decode(self, batch: Mapping[str, Tensor]) -> Labels:
        """Labels of a batch."""
        return Labels(self.names, batch["labels"].cpu().numpy())

    def loss(self, logits: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        r"""Binary cross-entropy, the mean over known labels; 0 with gradients of 0 for a batch without any."""
        labels = batch["labels"].to(logits)
        known = ~torch.isnan(labels)
        each = functional.binary_cross_entropy_with_logits(logits, labels.nan_to_num(), reduction="none")
        return (each * known).sum() / known.sum().clamp_min(1)

    def predict(self, logits: Tensor) -> dict[str, np.ndarray]:
        """`label_probabilities` (n, L); they do not add up to 1."""
        return {"label_probabilities": torch.sigmoid(logits.double()).cpu().numpy()}

    def judge(
        self, prediction: Prediction, target: Labels, reference: Reference = None, counts: Counts = None
    ) -> Scores:
        """AUROC of each label on its known samples, and the mean over labels where it is defined."""
        each = {}
        for k, name in enumerate(self.names):
            known = np.flatnonzero(~np.isnan(target.values[:, k]))
            score = prediction["label_probabilities"][known, k]
            each[metrics.label_metric(name)] = metrics.binary_auroc(
                target.values[known, k] == 1, score, None if counts is None else counts[..., known]
            )
        return {"macro_auroc": metrics.mean_of_defined(np.stack(list(each.values()), -1)), **each}

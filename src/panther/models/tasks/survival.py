r"""Survival tasks: Cox, discrete time and ranking."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from panther.cohort.targets import Kind, Survival
from panther.errors import InputError
from panther.evaluation import survival_metrics
from panther.models.losses import (
    cox,
    digitise,
    discrete_nll,
    log_survival_from,
    ranking,
    risk_from_hazards,
    time_bins,
)
from panther.models.tasks.task import Prediction, Task, tasks


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

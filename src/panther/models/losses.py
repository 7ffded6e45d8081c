r"""Losses as pure functions of tensors; each is a mean, independent of the size of the batch.

In survival losses `event` is True where the endpoint was observed, False where the patient was censored.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from panther.errors import InputError

TIES = ("efron", "breslow")


def grade_log_probabilities(logits: Tensor) -> Tensor:
    r"""Log-probabilities (B, K) of ordered grades from K - 1 outputs: a score s and steps, a cumulative link with logistic noise.

    .. math:: P(y > k) = \sigma(s - \theta_k),\quad \theta_0 = 0,\quad \theta_k = \theta_{k-1} + \mathrm{softplus}(a_k)

    Thresholds are ordered for all outputs. With steps :math:`a_k` that do not depend on the input (the probe) the odds are proportional; a
    network may learn steps that do.
    """
    score, steps = logits[:, :1], functional.softplus(logits[:, 1:])
    threshold = torch.cat([torch.zeros_like(score), steps.cumsum(1)], 1)  # (B, K - 1)
    above = functional.logsigmoid(score - threshold)  # log P(y > k)
    below = functional.logsigmoid(threshold - score)  # log P(y <= k)
    # P(y = k) = P(y > k - 1) P(y <= k) (1 - exp(-step)): a product, without cancellation for confident models
    middle = above[:, :-1] + below[:, 1:] + torch.log(-torch.expm1(-steps))
    return torch.cat([below[:, :1], middle, above[:, -1:]], 1)


def cox(log_risk: Tensor, time: Tensor, event: Tensor, ties: str = "efron") -> Tensor:
    r"""Negative log partial likelihood of Cox's model, per event.

    .. math:: -\frac{1}{E}\sum_{i: \delta_i=1}\Big[\eta_i - \log\Big(\sum_{j: t_j \ge t_i} e^{\eta_j}
              - \frac{l_i}{d_i} \sum_{j \in D(t_i)} e^{\eta_j}\Big)\Big]

    :math:`D(t)` are the :math:`d` events at time t, :math:`l_i = 0 \dots d-1` counts them (Efron); Breslow has
    :math:`l_i = 0`. A batch without events gives 0, with gradients of 0.

    Parameters
    ----------
    log_risk : Tensor
        Log relative hazard, (B,) or (B, 1).
    time, event : Tensor
        Follow-up (B,) and whether it ended with the endpoint (B,).
    ties : str
        `efron` or `breslow`.
    """
    eta, event = log_risk.reshape(-1), event.reshape(-1).bool()
    if not bool(event.any()):
        return eta.sum() * 0.0
    order = torch.argsort(time.reshape(-1), descending=True, stable=True)  # risk sets are prefixes
    eta, event, time = eta[order], event[order], time.reshape(-1)[order]
    _, group, size = torch.unique_consecutive(time, return_inverse=True, return_counts=True)
    last = size.cumsum(0) - 1  # (G,): equal times share a risk set
    log_at_risk = torch.logcumsumexp(eta, 0)[last][group]  # (B,)
    log_sum = log_at_risk
    if ties == "efron":  # log(1 - l/d * sum_D e^eta / sum_R e^eta) of each event, 0 for the others
        share = torch.zeros_like(eta).index_add(0, group, (eta - log_at_risk).exp() * event)[group]  # (B,), <= 1
        number = torch.zeros_like(group).index_add(0, group, event.to(group))  # (G,), d
        first = (number.cumsum(0) - number)[group]
        rank = (event.cumsum(0) - 1 - first).clamp_min(0).to(eta)  # l = 0 ... d-1 among the events of the group
        log_sum = log_at_risk + torch.log1p(-(rank / number[group].clamp_min(1)) * share * event)
    return (log_sum - eta)[event].mean()


def discrete_nll(logits: Tensor, time_bin: Tensor, event: Tensor, alpha: float = 0.5) -> Tensor:
    r"""Negative log-likelihood of discrete time.

    With hazards :math:`h = \sigma(l)` and :math:`S(t) = \prod_{k \le t} (1 - h_k)`,

    .. math:: L = (1-\alpha)(L_u + L_c) + \alpha L_u,\quad L_u = -\delta\,[\log S(t-1) + \log h(t)],\quad L_c = -(1-\delta) \log S(t)

    Everything stays in logarithms: a hazard of 0 or 1 is finite.

    Parameters
    ----------
    logits : Tensor
        One logit per time bin, (B, T).
    time_bin : Tensor
        Bin of each follow-up, (B,), from :func:`digitise`.
    alpha : float
        1 ignores the censored, 0 is the likelihood itself.
    """
    column = time_bin.reshape(-1, 1).long()
    event = event.reshape(-1).to(logits)
    log_survival = log_survival_from(logits)
    at_end = log_survival.gather(1, column).squeeze(1)
    before = at_end - functional.logsigmoid(-logits).gather(1, column).squeeze(1)  # log S(t-1); S(-1) = 1
    uncensored = -event * (before + functional.logsigmoid(logits).gather(1, column).squeeze(1))
    censored = -(1 - event) * at_end
    return ((1 - alpha) * (uncensored + censored) + alpha * uncensored).mean()


def ranking(log_risk: Tensor, time: Tensor, event: Tensor, tied_times: bool = True) -> Tensor:
    r"""Smooth 1 - c-index: mean over comparable pairs of the probability of the wrong order.

    .. math:: \frac{1}{|P|} \sum_{(i,j) \in P} \sigma(\eta_j - \eta_i),\quad P = \{\delta_i = 1, t_i < t_j\ \text{or}\ (t_i = t_j, \delta_j = 0)\}

    Constant risks give 1/2, as for the c-index. A batch without a comparable pair gives 0, with gradients of 0. Without ``tied_times`` an event
    and a censoring at the same time are not comparable.
    """
    eta, time, event = log_risk.reshape(-1), time.reshape(-1), event.reshape(-1).bool()
    later = time[:, None] < time[None, :]
    if tied_times:
        later = later | ((time[:, None] == time[None, :]) & ~event[None, :])
    first, second = (event[:, None] & later).nonzero(as_tuple=True)
    if len(first) == 0:
        return eta.sum() * 0.0
    return torch.sigmoid(eta[second] - eta[first]).mean()


def log_survival_from(logits: Tensor) -> Tensor:
    r"""Log survival after each bin, (B, T): :math:`\log S(t) = \sum_{k \le t} \log(1 - \sigma(l_k))`."""
    return functional.logsigmoid(-logits).cumsum(-1)


def risk_from_hazards(logits: Tensor) -> Tensor:
    r"""Risk (B,) that orders patients: :math:`-\sum_t S(t)`, minus the expected number of bins survived."""
    return -log_survival_from(logits).exp().sum(-1)


def time_bins(time: np.ndarray, event: np.ndarray, n_bins: int = 4) -> np.ndarray:
    """Inner edges of the bins, at most n_bins - 1: quantiles of the uncensored training times; equal ones are merged."""
    if n_bins < 2:
        raise InputError(f"Discrete survival needs at least 2 time bins, not {n_bins}.")
    uncensored = np.asarray(time, np.float64)[np.asarray(event, bool)]
    if len(uncensored) == 0:
        raise InputError("No training patient has an event, so there are no time bins")
    return np.unique(np.quantile(uncensored, np.linspace(0, 1, n_bins + 1)[1:-1]))


def digitise(time: np.ndarray, edges: np.ndarray, on_edge: str = "later") -> np.ndarray:
    """Bin 0 ... len(edges) of each time; a time on an edge belongs to the `later` bin or to the `earlier` one."""
    side: Any = {"later": "right", "earlier": "left"}[on_edge]
    return np.searchsorted(np.asarray(edges, np.float64), np.asarray(time, np.float64), side=side).astype(np.int64)

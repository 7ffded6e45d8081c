"""How sure a model is of new samples: calibrated probabilities, prediction sets, and whether it has seen the like, in words."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from panther.engine import Work, stream
from panther.errors import not_finite
from panther.evaluation.conformal import prediction_sets
from panther.evaluation.outlying import in_words
from panther.models.blocks.joint_scaling import AnyScaler
from panther.models.model import Model
from panther.models.sureness.value import Calibration, Margin
from panther.statistics import compute_dtype, squared_distances
from panther.types import Openable, Prototypes

FARTHER = "familiarity"  # name of the p-values among a model's predictions
OUTSIDE = "at the edge of what the model has seen, or beyond"  # an extreme training sample is called so, too
MANY = 0.1  # share of patches beyond the prototypes' reach that is unusual; 0.01 is expected
MOST = 0.5  # share from which the slide is something else


def with_familiarity(
    model: Model, predictions: Mapping[str, np.ndarray], x: np.ndarray, scaler: AnyScaler | None = None
) -> dict[str, np.ndarray]:
    """Predictions with how often a sample like the training's is at least as far out, of embeddings or mean features (n, D)."""
    cloud = model.sure.cloud
    if cloud is None:
        return dict(predictions)
    blocks = [x[i : i + 64] for i in range(0, len(x), 64)]
    seen = blocks if scaler is None else [scaler(torch.from_numpy(np.array(block))).numpy() for block in blocks]
    return {**predictions, FARTHER: np.concatenate([cloud.p_value(block) for block in seen])}


def sure_columns(
    model: Model, samples: Sequence[str], predictions: Mapping[str, np.ndarray], bags: Sequence[Openable], work: Work
) -> dict[str, Any]:
    """Columns of the table of predictions, as far as the model knows how sure it may be; the last one says it in words."""
    columns: dict[str, Any] = {}
    words: list[list[str]] = [[] for _ in samples]
    promise, cloud = model.sure.promise, model.sure.cloud
    if isinstance(promise, Calibration):
        columns |= _calibrated(model, predictions["probabilities"], promise, words)
    elif isinstance(promise, Margin):
        low, high = (predictions["value"] + sign * promise.half_width for sign in (-1, 1))
        columns |= {"low": low, "high": high}
        for one, other, said in zip(low, high, words, strict=True):
            said.append(f"{one:.4g} to {other:.4g} ({100 * promise.level:g} % interval)")
    if cloud is not None and FARTHER in predictions:
        columns[FARTHER] = np.round(predictions[FARTHER], 4)
    shares = _rare(model, samples, bags, work)
    if shares is not None:
        columns["rare_patches"] = np.round(shares, 4)
    for row, said in enumerate(words if FARTHER in columns or shares is not None else ()):
        p = float(predictions[FARTHER][row]) if FARTHER in columns else 1.0
        share = 0.0 if shares is None else float(shares[row])
        said.append(_seen(p, share, 0 if cloud is None else len(cloud.distances)))
    if columns:
        columns["sureness"] = ["; ".join(said) for said in words]
    return columns


def _calibrated(
    model: Model, probabilities: np.ndarray, calibration: Calibration, words: list[list[str]]
) -> dict[str, Any]:
    names: Sequence[str] = model.task.names  # type: ignore[attr-defined]
    p = calibration.probabilities(probabilities)
    sets = [
        [name for name, is_in in zip(names, row, strict=True) if is_in]
        for row in prediction_sets(p, calibration.threshold)
    ]
    for inside, said in zip(sets, words, strict=True):
        every = "; that is every class, so it cannot tell" if len(inside) == len(names) else ""
        said.append(f"{' or '.join(inside)} ({100 * calibration.level:g} % set{every})")
    columns: dict[str, Any] = {f"calibrated_{name}": p[:, k] for k, name in enumerate(names)}
    return {**columns, "prediction_set": ["; ".join(inside) for inside in sets]}


def _seen(p: float, share: float, number: int) -> str:
    """Whether the model has seen the like, by the embedding and by the patches."""
    reasons = []
    verdict = in_words(p, number) if number else "familiar"
    if verdict != "familiar":
        most = p > 1 / (number + 1) + 1e-12
        farther = (
            f"{100 * (1 - p):.0f} % of the {number} training samples were"
            if most
            else f"any of the {number} training samples was"
        )
        reasons.append(f"farther out than {farther} from the others")
    if share >= MANY:
        reasons.append(
            f"{100 * share:.0f} % of the patches lie farther from every prototype than 99 % of the training patches"
        )
    if not reasons:
        return "like the training samples"
    return f"{OUTSIDE if verdict == 'outside' or share >= MOST else 'unusual'}: {', and '.join(reasons)}"


def _rare(model: Model, samples: Sequence[str], bags: Sequence[Openable], work: Work) -> np.ndarray | None:
    """Share of patches (n,) beyond the reach of the prototypes; None where that is not known."""
    if model.prototypes is None or model.sure.reach is None:
        return None
    by_name = {bag.sample: bag for bag in bags}
    chosen = [by_name[name] for name in samples]
    function = partial(_share_beyond, prototypes=model.prototypes, reach=model.sure.reach)
    shares = np.full(len(chosen), np.nan)
    for index, share in stream(function, chosen, "looking for rare patches", work, {}):
        shares[index] = share
    return shares


@torch.no_grad()
def _share_beyond(ref: Openable, *, prototypes: Prototypes, reach: float) -> float:
    """Share of a bag's patches that are farther from every prototype than ``reach``."""
    bag = prototypes.prepared(ref.open())
    if len(bag) == 0:
        return 0.0
    centroids = prototypes.centroids.to(compute_dtype(bag.features.dtype))
    distance = squared_distances(bag.features, centroids, centroids.mean(0)).amin(-1)  # (N,)
    if not bool(torch.isfinite(distance).all()):
        raise not_finite(bag.source, int((~torch.isfinite(distance)).nonzero()[0]))
    return float((distance.sqrt() > reach).double().mean())

"""What each method predicted of every patient: the predictions of a study, means over its seeds and folds."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from panther.evaluation.metrics import mean_of_defined
from panther.evaluation.survival_metrics import wrong_pairs

# what is tested together: the same model meets the same patients
TOGETHER = ["row", "seed", "fold"]


@dataclass(frozen=True, eq=False)
class Predicted:
    """Tested samples (S), and predictions of methods (M); NaN where a method did not meet a sample."""

    samples: list[str]
    patients: list[str]


@dataclass(frozen=True, eq=False)
class Classified(Predicted):
    """Classes that methods predicted."""

    truth: np.ndarray  # (S,), number of the class; -1 where the study does not know it
    probability: np.ndarray  # (M, S, K), means

    @property
    def predicted(self) -> np.ndarray:
        """Class of the highest mean probability (M, S); -1 where there is none."""
        known = ~np.isnan(self.probability).any(2)
        return np.where(known, np.nan_to_num(self.probability, nan=-1.0).argmax(2), -1)

    @property
    def of_truth(self) -> np.ndarray:
        """Probability (M, S) of the true class."""
        chosen = np.take_along_axis(self.probability, np.maximum(self.truth, 0)[None, :, None], 2)[..., 0]
        return np.where(self.truth >= 0, chosen, np.nan)


@dataclass(frozen=True, eq=False)
class Ranked(Predicted):
    """Risks that methods predicted. Risks of two models cannot be compared, ranks among the patients that both met can."""

    time: np.ndarray  # (S,)
    event: np.ndarray  # (S,)
    rank: np.ndarray  # (M, S), share of the patients tested together whose risk is lower: 0 the lowest, 1 the highest
    wrong: np.ndarray  # (M, S), share of a patient's comparable pairs in the wrong order; NaN where there is no pair


@dataclass(frozen=True, eq=False)
class Measured(Predicted):
    """Values that methods predicted."""

    truth: np.ndarray  # (S,)
    predicted: np.ndarray  # (M, S), means

    @property
    def error(self) -> np.ndarray:
        """Absolute error (M, S)."""
        return np.abs(self.predicted - self.truth)


@dataclass(frozen=True, eq=False)
class Labelled(Predicted):
    """Several labels that methods predicted, each yes or no."""

    names: list[str]
    truth: np.ndarray  # (S, L): 1, 0 or NaN where a label is not known
    probability: np.ndarray  # (M, S, L), means

    @property
    def of_truth(self) -> np.ndarray:
        """Probability (M, S) of the true answer, the mean over the labels that are known."""
        probability = np.where(self.truth == 1, self.probability, 1 - self.probability)
        return mean_of_defined(np.where(np.isnan(self.truth), np.nan, probability))


def classified(predictions: pd.DataFrame, methods: Sequence[str], classes: Sequence[str]) -> Classified:
    """Classes of one test (`part`), by method (column `row`) and sample."""
    samples, means = _means(predictions, methods, [f"probability_{name}" for name in classes])
    number = {name: k for k, name in enumerate(classes)}
    truth = np.array([number.get(label, -1) for label in samples["label"]], int)
    return Classified(list(samples["sample"]), list(samples["patient"]), truth, means)


def ranked(predictions: pd.DataFrame, methods: Sequence[str]) -> Ranked:
    """Risks of one test (`part`), by method (column `row`) and sample."""
    from scipy.stats import rankdata  # half a second

    samples, ranks = predictions.drop_duplicates("sample"), []
    for _, group in predictions.groupby(TOGETHER, sort=False):
        risk = group["risk"].to_numpy(float)
        wrong, pairs = wrong_pairs(group["time"].to_numpy(float), group["event"].to_numpy(bool), risk)
        rank = (rankdata(risk) - 1) / (len(risk) - 1) if len(risk) > 1 else np.full(len(risk), np.nan)
        ranks.append(group[["row", "sample"]].assign(rank=rank, wrong=wrong, pairs=pairs))
    totals = (
        pd.concat(ranks).groupby(["row", "sample"], sort=False).agg({"rank": "mean", "wrong": "sum", "pairs": "sum"})
    )
    totals = totals.reindex(pd.MultiIndex.from_product([methods, samples["sample"]]))
    share = totals["wrong"] / totals["pairs"].where(totals["pairs"] > 0)
    return Ranked(
        list(samples["sample"]),
        list(samples["patient"]),
        samples["time"].to_numpy(float),
        samples["event"].to_numpy(bool),
        totals["rank"].to_numpy(float).reshape(len(methods), -1),
        share.to_numpy(float).reshape(len(methods), -1),
    )


def measured(predictions: pd.DataFrame, methods: Sequence[str]) -> Measured:
    """Values of one test (`part`), by method (column `row`) and sample."""
    samples, means = _means(predictions, methods, ["predicted"])
    truth = samples["value"].to_numpy(float)
    return Measured(list(samples["sample"]), list(samples["patient"]), truth, means[..., 0])


def labelled(predictions: pd.DataFrame, methods: Sequence[str], names: Sequence[str]) -> Labelled:
    """Labels of one test (`part`), by method (column `row`) and sample."""
    samples, means = _means(predictions, methods, [f"probability_{name}" for name in names])
    truth = samples[[f"label_{name}" for name in names]].to_numpy(float)
    return Labelled(list(samples["sample"]), list(samples["patient"]), list(names), truth, means)


def mean_over_methods(values: np.ndarray) -> np.ndarray:
    """Mean (S,) over the methods (M, S) that have a value; NaN where none has."""
    known = ~np.isnan(values)
    total, count = np.where(known, values, 0.0).sum(0), known.sum(0)
    return np.divide(total, count, out=np.full(len(total), np.nan), where=count > 0)


def _means(predictions: pd.DataFrame, methods: Sequence[str], columns: list[str]) -> tuple[pd.DataFrame, np.ndarray]:
    """First row of each sample, and means (M, S, K) of columns over seeds and folds."""
    samples = predictions.drop_duplicates("sample")
    means = predictions.groupby(["row", "sample"], sort=False)[columns].mean()
    means = means.reindex(pd.MultiIndex.from_product([methods, samples["sample"]]))
    return samples, means.to_numpy(float).reshape(len(methods), len(samples), len(columns))

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
class Classified:
    """Classes that methods predicted; a method that did not meet a patient has NaN."""

    samples: list[str]
    patients: list[str]
    truth: np.ndarray  # (S,), number of the class; -1 where the study does not know it
    probability: np.ndarray  # (M, S, K), means

    @property
    def predicted(self) -> np.ndarray:
        """Class of the highest mean probability (M, S); -1 where there is none."""
        known = ~np.isnan(self.probability).any(2)
        return np.where(known, np.nan_to_num(self.probability, nan=-1.0).argmax(2), -1)

    @property
    def of_truth(self) -> np.ndarray:
        """Probability (M, S) that was given to the truth."""
        chosen = np.take_along_axis(self.probability, np.maximum(self.truth, 0)[None, :, None], 2)[..., 0]
        return np.where(self.truth >= 0, chosen, np.nan)


@dataclass(frozen=True, eq=False)
class Ranked:
    """Risks that methods predicted. Risks of two models cannot be compared, ranks among the patients that both met can."""

    samples: list[str]
    patients: list[str]
    time: np.ndarray  # (S,)
    event: np.ndarray  # (S,)
    rank: np.ndarray  # (M, S), share of the patients tested together whose risk is lower: 0 the lowest, 1 the highest
    wrong: (
        np.ndarray
    )  # (M, S), share of a patient's comparable pairs that are in the wrong order; NaN where there is no pair


def classified(predictions: pd.DataFrame, methods: Sequence[str], classes: Sequence[str]) -> Classified:
    """Classes of one test (`part`), by method (column `row`) and sample."""
    people = predictions.drop_duplicates("sample")
    probability = _means(predictions, methods, [f"probability_{name}" for name in classes])
    number = {name: k for k, name in enumerate(classes)}
    truth = np.array([number.get(label, -1) for label in people["label"]], int)
    return Classified(list(people["sample"]), list(people["patient"]), truth, probability)


def ranked(predictions: pd.DataFrame, methods: Sequence[str]) -> Ranked:
    """Risks of one test (`part`), by method (column `row`) and sample."""
    people = predictions.drop_duplicates("sample")
    counted = pd.concat([_counted(group) for _, group in predictions.groupby(TOGETHER, sort=False)])
    totals = counted.groupby(["row", "sample"], sort=False).agg({"rank": "mean", "wrong": "sum", "number": "sum"})
    totals = totals.reindex(pd.MultiIndex.from_product([methods, people["sample"]]))
    shape = len(methods), len(people)
    wrong = (totals["wrong"] / totals["number"].where(totals["number"] > 0)).to_numpy(float)
    return Ranked(
        list(people["sample"]),
        list(people["patient"]),
        people["time"].to_numpy(float),
        people["event"].to_numpy(bool),
        totals["rank"].to_numpy(float).reshape(shape),
        wrong.reshape(shape),
    )


@dataclass(frozen=True, eq=False)
class Measured:
    """Values that methods predicted; a method that did not meet a patient has NaN."""

    samples: list[str]
    patients: list[str]
    truth: np.ndarray  # (S,)
    predicted: np.ndarray  # (M, S), means

    @property
    def error(self) -> np.ndarray:
        """Absolute error (M, S)."""
        return np.abs(self.predicted - self.truth)


@dataclass(frozen=True, eq=False)
class Labelled:
    """Several labels that methods predicted, each yes or no; NaN where a label is not known, or a method did not meet a patient."""

    samples: list[str]
    patients: list[str]
    names: list[str]
    truth: np.ndarray  # (S, L): 1, 0 or NaN
    probability: np.ndarray  # (M, S, L), means

    @property
    def of_truth(self) -> np.ndarray:
        """Probability (M, S) that was given to what is true, the mean over the labels that are known."""
        probability = np.where(self.truth == 1, self.probability, 1 - self.probability)
        return mean_of_defined(np.where(np.isnan(self.truth), np.nan, probability))


def measured(predictions: pd.DataFrame, methods: Sequence[str]) -> Measured:
    """Values of one test (`part`), by method (column `row`) and sample."""
    people = predictions.drop_duplicates("sample")
    means = _means(predictions, methods, ["predicted"])[..., 0]
    return Measured(list(people["sample"]), list(people["patient"]), people["value"].to_numpy(float), means)


def labelled(predictions: pd.DataFrame, methods: Sequence[str], names: Sequence[str]) -> Labelled:
    """Labels of one test (`part`), by method (column `row`) and sample."""
    people = predictions.drop_duplicates("sample")
    means = _means(predictions, methods, [f"probability_{name}" for name in names])
    truth = people[[f"label_{name}" for name in names]].to_numpy(float)
    return Labelled(list(people["sample"]), list(people["patient"]), list(names), truth, means)


def _means(predictions: pd.DataFrame, methods: Sequence[str], columns: list[str]) -> np.ndarray:
    """Means (M, S, K) over seeds and folds."""
    people = predictions.drop_duplicates("sample")
    index = pd.MultiIndex.from_product([methods, people["sample"]])
    means = predictions.groupby(["row", "sample"], sort=False)[columns].mean()
    return means.reindex(index).to_numpy(float).reshape(len(methods), len(people), len(columns))


def mean_over_methods(values: np.ndarray) -> np.ndarray:
    """Mean (S,) of what methods (M, S) say, of those that say something; NaN where none does."""
    known = ~np.isnan(values)
    total, count = np.where(known, values, 0.0).sum(0), known.sum(0)
    return np.divide(total, count, out=np.full(len(total), np.nan), where=count > 0)


def _counted(group: pd.DataFrame) -> pd.DataFrame:
    """Ranks and pairs of the patients that one model met."""
    from scipy.stats import rankdata  # half a second

    time, event, risk = (
        group[name].to_numpy(kind) for name, kind in (("time", float), ("event", bool), ("risk", float))
    )
    wrong, number = wrong_pairs(time, event, risk)
    rank = (rankdata(risk) - 1) / (len(risk) - 1) if len(risk) > 1 else np.full(len(risk), np.nan)
    return pd.DataFrame(
        {"row": group["row"], "sample": group["sample"], "rank": rank, "wrong": wrong, "number": number}
    )

"""What guessing gives: the number that a result has to beat."""

import numpy as np
import pandas as pd

from panther.evaluation.metric_names import OF_LABEL

CHANCE = {
    "c_index": 0.5,
    "c_index_uno": 0.5,
    "auroc": 0.5,
    "quadratic_kappa": 0.0,
    "pearson": 0.0,
    "spearman": 0.0,
    "r2": 0.0,
    "macro_auroc": 0.5,
}  # wherever it is tested; balanced accuracy depends on the classes there
BALANCED = "balanced_accuracy"


def patients_of_classes(predictions: pd.DataFrame) -> pd.DataFrame:
    """How many patients of each class each fold tests: folds down, classes across."""
    first = predictions.drop_duplicates(["fold", "sample"])  # labels of a later row may be permuted
    once = first.drop_duplicates(["fold", "label", "patient"])
    return once.groupby(["fold", "label"]).size().unstack(fill_value=0)


def chance(metric: str, predictions: pd.DataFrame) -> float | None:
    r"""What guessing gives on one test, where that is one number.

    Balanced accuracy is the mean recall of the :math:`K_f` classes that a fold has, so naming one of them always gives
    :math:`1 / K_f`, and no guess gives more.
    """
    if metric == BALANCED:
        return float((1 / (patients_of_classes(predictions) > 0).sum(axis=1)).mean())
    return CHANCE["auroc"] if metric.startswith(OF_LABEL) else CHANCE.get(metric)


def chance_in_resamples(metric: str, predictions: pd.DataFrame) -> float | None:
    r"""What guessing gives on resamples of the patients, which intervals are made of.

    A resample of N patients lacks all m of a class with probability :math:`(1 - m / N)^N`, and is then scored on the classes that are left,
    of which guessing gets more right: the interval of balanced accuracy is too high by as much.
    """
    if metric != BALANCED:
        return chance(metric, predictions)
    everybody = predictions["patient"].nunique()
    found = []
    for counts in patients_of_classes(predictions).to_numpy():
        number = np.ones(1)  # probability that 0, 1, 2 ... classes are left
        for lost in (1 - counts[counts > 0] / everybody) ** everybody:
            number = np.append(number * lost, 0) + np.append(0, number * (1 - lost))
        found.append(float(number[1:] @ (1 / np.arange(1, len(number)))) / number[1:].sum())
    return float(np.mean(found))

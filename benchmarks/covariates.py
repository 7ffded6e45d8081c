"""What a probe says that slides add to covariates, on cohorts where they add nothing and where they do.

`python benchmarks/covariates.py` draws cohorts of 150 patients with three covariates and an embedding of 60 numbers, and compares covariates alone
with both together over five folds: how large the gain in AUROC is, and how often its interval over patients says that there is one. Once with
covariates as the product treats them, once as one statistic of the embedding among others. Then embeddings that know only the square of a covariate,
which adds nothing to it: with a linear term for each covariate and with the product's spline. `--quick` draws few.
"""

import argparse
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

import _harness as harness
from panther.cohort.covariates import COVARIATES, SPLINE_FROM, CovariateSpec, fit_covariates
from panther.evaluation.intervals import Difference, Resampled, differences, resample
from panther.evaluation.metrics import classification_metrics
from panther.models.probes import Probe, fit_logistic

PATIENTS, NUMBERS, FOLDS, RESAMPLES = 150, 60, 5, 500
EFFECTS = {"nothing": 0.0, "something": 0.5}  # of the slide, beside covariates of 1 and 0.5
SQUARE = "the square of a covariate"
TERMS = {"linear terms": 0, "splines (default)": SPLINE_FROM}  # fewest samples
TREATED = {"a separate block": COVARIATES, "a statistic among others": "clinic"}


class Patients(NamedTuple):
    """A drawn cohort."""

    embedding: np.ndarray  # (n, D), of variance 1 in all
    clinic: np.ndarray  # (n, 3)
    labels: np.ndarray  # (n,)
    fold: np.ndarray  # (n,)


def drawn(seed: int, slide: float) -> Patients:
    """Patients whose odds depend on two covariates, and on five numbers of the embedding by ``slide``."""
    rng = np.random.default_rng(seed)
    clinic, embedding = rng.normal(size=(PATIENTS, 3)), rng.normal(size=(PATIENTS, NUMBERS))
    odds = clinic[:, 0] + 0.5 * clinic[:, 1] + slide * embedding[:, :5].sum(1)
    labels = (rng.random(PATIENTS) < 1 / (1 + np.exp(-odds))).astype(np.int64)
    return Patients(embedding / np.sqrt(NUMBERS), clinic, labels, rng.permutation(PATIENTS) % FOLDS)


def drawn_square(seed: int) -> Patients:
    """Patients whose odds depend on the square of a covariate, which five numbers of the embedding show with noise."""
    patients, rng = drawn(seed, 0.0), np.random.default_rng([seed, 1])
    square = patients.clinic[:, 0] ** 2
    odds = 1.5 * (square - 1) + 0.5 * patients.clinic[:, 1]
    patients.embedding[:, :5] += (square[:, None] - 1) / np.sqrt(NUMBERS)
    return patients._replace(labels=(rng.random(PATIENTS) < 1 / (1 + np.exp(-odds))).astype(np.int64))


def judged(patients: Patients, *, embedding: bool, called: str = COVARIATES, samples: int = 0) -> Resampled:
    """AUROC of a probe over the folds, on resamples of patients; covariates are read as in a cohort of so many samples."""
    probabilities = np.zeros((PATIENTS, 2))
    table = pd.DataFrame(patients.clinic.astype(str), columns=[f"c{i}" for i in range(patients.clinic.shape[1])])
    for fold in range(FOLDS):
        test = patients.fold == fold
        fitted, _ = fit_covariates(table[~test], [CovariateSpec(column=name) for name in table], samples)
        x = fitted.encode(table)
        blocks = None
        if embedding:
            blocks = np.array(["embedding"] * NUMBERS + [called] * x.shape[1])
            x = np.hstack([patients.embedding, x])
        probe: Probe = fit_logistic(x[~test], patients.labels[~test], 2, blocks=blocks)
        logits = probe.logits(x[test])
        odds = np.exp(logits - logits.max(1, keepdims=True))
        probabilities[test] = odds / odds.sum(1, keepdims=True)

    def measure(counts: np.ndarray) -> dict[str, np.ndarray]:
        rows = [patients.fold == fold for fold in range(FOLDS)]
        found = [classification_metrics(patients.labels[r], probabilities[r], counts[..., r])["auroc"] for r in rows]
        return {"auroc": np.nanmean(np.stack(found, -1), -1)}

    return resample(measure, np.arange(PATIENTS), RESAMPLES)


def gains(cohorts: Sequence[Patients], called: str, samples: int = 0) -> list[Difference]:
    """Gain of both together over covariates alone, of each cohort."""
    return [
        differences(
            judged(one, embedding=True, called=called, samples=samples), judged(one, embedding=False, samples=samples)
        )["auroc"]
        for one in cohorts
    ]


def row(found: Sequence[Difference]) -> list[str]:
    """Mean gain, and how often its interval covers 0 and lies above it."""
    covers, above = np.mean([one.low <= 0 <= one.high for one in found]), np.mean([one.low > 0 for one in found])
    return [f"{np.mean([one.value for one in found]):+.3f}", f"{covers:.1%}", f"{above:.1%}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cohorts", type=int, default=200)
    parser.add_argument("--quick", action="store_true", help="4 cohorts")
    arguments = parser.parse_args()
    cohorts = 4 if arguments.quick else arguments.cohorts
    print(harness.machine("scikit-learn"))
    rows = []
    for adds, slide in EFFECTS.items():
        for treated, called in TREATED.items():
            rows.append([adds, treated, *row(gains([drawn(seed, slide) for seed in range(cohorts)], called))])
    for terms, samples in TERMS.items():
        squares = [drawn_square(seed) for seed in range(cohorts)]
        rows.append([SQUARE, terms, *row(gains(squares, COVARIATES, samples))])
    header = ["the slide adds", "covariates have", "mean gain in AUROC", "interval covers 0", "interval above 0"]
    harness.table(f"{cohorts} cohorts of {PATIENTS} patients", header, rows)


if __name__ == "__main__":
    main()

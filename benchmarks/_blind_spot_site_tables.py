"""Tables of _blind_spot_sites.py: three measures on unseen laboratories, and each remedy against PANTHER, paired."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

import _harness as harness

RESAMPLES = 100
Cells = Mapping[tuple[str, int, str], np.ndarray]  # question, seed, method -> logits of the test patients


def auc(positive: np.ndarray, logits: np.ndarray) -> float:
    """Share of pairs in the right order; equal ones count half."""
    less = logits[positive][:, None] - logits[~positive]
    return float(((less > 0) + (less == 0) / 2).mean())


def balanced_accuracy(positive: np.ndarray, logits: np.ndarray) -> float:
    """At the threshold that was trained."""
    return float(((logits > 0)[positive].mean() + (logits <= 0)[~positive].mean()) / 2)


def of_sites(score: Callable[[np.ndarray, np.ndarray], float]) -> Callable[..., float]:
    """Mean of a score over laboratories."""

    def mean(positive: np.ndarray, logits: np.ndarray, site: np.ndarray) -> float:
        return float(np.mean([score(positive[site == one], logits[site == one]) for one in np.unique(site)]))

    return mean


MEASURES = {
    "AUC of all new laboratories together": lambda positive, logits, site: auc(positive, logits),
    "AUC within a new laboratory, mean": of_sites(auc),
    "balanced accuracy within a new laboratory at the trained threshold, mean": of_sites(balanced_accuracy),
}


def tell_sites(cells: Cells, questions: Mapping, methods: Sequence[str]) -> None:
    """Print a table for each measure and kind of tiles, then the differences."""
    found = {name: scores_of(cells, name, question, methods) for name, question in questions.items()}
    for bank in dict.fromkeys(question.bank for question in questions.values()):
        asked = [name for name, question in questions.items() if question.bank == bank and found[name]]
        heads = [name.removeprefix(f"{bank}, ") for name in asked]
        for number, measure in enumerate(MEASURES):
            rows = [[method, *(shown(found[name].get(method), number) for name in asked)] for method in methods]
            if asked:
                harness.table(f"{bank}: {measure} (95 % interval)", ["method", *heads], rows)
        for number, measure in enumerate(MEASURES):
            rows = [
                [method, *(against(found[name], method, number) for name in asked)]
                for method in methods
                if method != "PANTHER"
            ]
            if asked:
                harness.table(f"{bank}: less PANTHER, {measure}", ["method", *heads], rows)


def scores_of(cells: Cells, name: str, question, methods: Sequence[str]) -> dict[str, np.ndarray]:
    """Measures of each method (1 + R, 3): as found, then of resamples of cohorts and of the patients in each, the same for all methods."""
    seeds = sorted({seed for q, seed, _ in cells if q == name})
    known = [method for method in methods if all((name, seed, method) in cells for seed in seeds)] if seeds else []
    site, label = question.tested()
    positive = label == 1
    rng = np.random.default_rng(0)
    groups = [np.flatnonzero((site == s) & (positive == p)) for s in np.unique(site) for p in (False, True)]
    found: dict[str, list] = {method: [] for method in known}
    for number in range(1 + RESAMPLES if known else 0):
        drawn = seeds if number == 0 else rng.choice(seeds, len(seeds))
        scores: dict[str, list] = {method: [] for method in known}
        for seed in drawn:
            rows = np.concatenate([g if number == 0 else rng.choice(g, len(g)) for g in groups])
            for method in known:
                logits = cells[name, int(seed), method][rows]
                scores[method].append([of(positive[rows], logits, site[rows]) for of in MEASURES.values()])
        for method in known:
            found[method].append(np.mean(scores[method], 0))
    return {method: np.array(rows) for method, rows in found.items()}


def shown(scores: np.ndarray | None, number: int) -> str:
    if scores is None:
        return ""
    low, high = np.quantile(scores[1:, number], [0.025, 0.975])
    return f"{scores[0, number]:.3f} ({low:.2f}-{high:.2f})"


def against(found: Mapping[str, np.ndarray], method: str, number: int) -> str:
    """Difference to PANTHER, paired."""
    if method not in found:
        return ""
    less = found[method][:, number] - found["PANTHER"][:, number]
    low, high = np.quantile(less[1:], [0.025, 0.975])
    return f"{less[0]:+.3f} ({low:+.2f} to {high:+.2f})"

"""Tables of blind_spots.py: scores by question and method, and whether the aims are met, with intervals."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

import _harness as harness
from _blind_spot_worlds import QUESTIONS, TRAIN
from panther.evaluation.metrics import binary_auroc

RESAMPLES = 1000
Cells = Mapping[tuple[str, int, str], np.ndarray]  # question, seed, method -> logits of the test patients
Score = Callable[[np.ndarray, np.ndarray], float]


def truth(count: int) -> np.ndarray:
    """Classes of the test patients: they take turns."""
    return (np.arange(count) + TRAIN) % 2 == 1


def balanced_accuracy(positive: np.ndarray, logits: np.ndarray) -> float:
    return float(((logits > 0)[positive].mean() + (logits <= 0)[~positive].mean()) / 2)


SCORES: dict[str, tuple[str, Score]] = {
    "space": ("balanced accuracy", balanced_accuracy),
    "needle": ("balanced accuracy", balanced_accuracy),
    "panoramic": ("balanced accuracy", balanced_accuracy),
    "site": ("AUC", binary_auroc),
}


def tell(cells: Cells, methods: Sequence[str]) -> None:
    """Print everything."""
    for kind, (name, score) in SCORES.items():
        asked = [q for q, question in QUESTIONS.items() if question.kind == kind and any(c[0] == q for c in cells)]
        for measure, judge in {name: score, "AUC": binary_auroc}.items():
            rows = [
                [method, *(shown(cells, q, method, judge) for q in asked)]
                for method in methods
                if any(seeds_of(cells, q, method) for q in asked)
            ]
            if rows:
                harness.table(f"{kind}: {measure} of test patients, 95 % interval", ["method", *asked], rows)
    aims(cells)


def seeds_of(cells: Cells, question: str, *methods: str) -> list[int]:
    """Cohorts that all of these methods have been asked about."""
    found = [{seed for q, seed, m in cells if (q, m) == (question, method)} for method in methods]
    return sorted(set.intersection(*found)) if found else []


def resampled(cells: Cells, question: str, methods: Sequence[str], score: Score) -> tuple[np.ndarray, np.ndarray]:
    """Mean score of each method (M,), and of resamples (R, M): cohorts are drawn anew, and in each its patients, the same for all methods."""
    seeds = seeds_of(cells, question, *methods)
    logits = np.array([[cells[question, seed, m] for m in methods] for seed in seeds])  # (S, M, n)
    positive = truth(logits.shape[2])
    alone = np.array([[score(positive, row) for row in own] for own in logits]).mean(0)
    rng = np.random.default_rng(0)
    drawn = np.empty((RESAMPLES, len(methods)))
    for number in range(RESAMPLES):
        scores = []
        for seed in rng.choice(len(seeds), len(seeds)):
            rows = np.concatenate([rng.choice(np.flatnonzero(part), part.sum()) for part in (positive, ~positive)])
            scores.append([score(positive[rows], row[rows]) for row in logits[seed]])
        drawn[number] = np.mean(scores, 0)
    return alone, drawn


def shown(cells: Cells, question: str, method: str, score: Score) -> str:
    if not seeds_of(cells, question, method):
        return ""
    alone, drawn = resampled(cells, question, [method], score)
    low, high = np.quantile(drawn[:, 0], [0.025, 0.975])
    return f"{alone[0]:.3f} ({low:.2f}-{high:.2f})"


def difference(cells: Cells, question: str, first: str, second: str, score: Score) -> tuple[float, float, float]:
    """First less second, with its paired interval."""
    alone, drawn = resampled(cells, question, [first, second], score)
    low, high = np.quantile(drawn[:, 0] - drawn[:, 1], [0.025, 0.975])
    return float(alone[0] - alone[1]), float(low), float(high)


def aims(cells: Cells) -> None:
    """The aims of issue 18, each beside what was found."""
    rows: list[list[str]] = []
    both = "PANTHER + space + tail"

    def compare(question: str, first: str, second: str, least: float, what: str) -> None:
        if not seeds_of(cells, question, first, second):
            return
        score = SCORES[QUESTIONS[question].kind][1]
        found, low, high = difference(cells, question, first, second, score)
        verdict = (
            "yes" if low > least else "no" if high < least else "undecided" if found < least else "yes, but not surely"
        )
        rows.append([question, f"{first} - {second}", what, f"{found:+.3f} ({low:+.3f} to {high:+.3f})", verdict])

    for question, asked in QUESTIONS.items():
        if asked.kind == "space":
            for network in ("ABMIL", "TransMIL", "PANTHER"):
                compare(question, "PANTHER + space", network, 0.0, "at least 0")
        if asked.kind == "needle":
            for method in ("PANTHER + tail", both, "PANTHER"):
                compare(question, method, "ABMIL", -0.02, "above -0.02")
        if asked.kind == "panoramic":
            for method in ("PANTHER + space", "PANTHER + tail", both):
                compare(question, method, "PANTHER", -0.02, "above -0.02")
        if asked.kind == "site":
            gain = (0.05, "at least +0.05") if asked.stains and not asked.confounding else (-0.02, "above -0.02")
            for method in ("centred by slide", "centred by site"):
                compare(question, f"PANTHER, {method}", "PANTHER", *gain)
    harness.table("aims", ["question", "difference", "aim", "found (95 % interval)", "met"], rows)

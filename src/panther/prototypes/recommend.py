"""From the criteria to one number and the sentences that say why: reproducibility first, likelihood as its bound."""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from torch import Tensor

from panther.prototypes.candidates import Candidate, CandidateScores, spread, standard_error

NEARLY_ALL = 0.9  # part of the prototypes that must come back for a number to count as supported
LAST_STRETCH = 0.75  # of the range: a likelihood that needs more than this has not stopped rising
PARTS = "parts of the slide"
FEW_UNITS = 10  # slides or patients below which halves are too small to speak for the cohort


@dataclass(frozen=True)
class Choice:
    """All candidates and the recommended one."""

    candidates: tuple[Candidate, ...]
    recommended: int
    supported: tuple[int, int] | None  # smallest and largest number whose prototypes come back; None: no number does
    sufficient: (
        int  # smallest number whose likelihood is as good as the best: what lies above buys nothing that can be told
    )
    still_rising: bool  # the likelihood had not stopped rising at the end of the range
    sentence: str  # the recommendation
    remarks: tuple[str, ...]  # what else a user must know before believing it
    failures: Mapping[str, str]


@dataclass(frozen=True)
class HalvedCohort:
    """What was compared."""

    unit: str  # "slides", "patients", or PARTS where there is one slide only
    units: int
    halvings: int
    failures: Mapping[str, str]


def recommend(known: Mapping[int, CandidateScores], cohort: HalvedCohort) -> Choice:
    """Choose the largest C whose prototypes come back in both halves, but no more than the likelihood of unseen slides asks for."""
    known = _with_gains(known)
    sufficient, rising = _sufficient(known)
    back = [c for c, judged in known.items() if judged.candidate.share_back >= NEARLY_ALL]
    recommended = _choose(known, back, sufficient)
    supported = (min(back), max(back)) if back else None
    choice = Choice(
        tuple(judged.candidate for judged in known.values()),
        recommended,
        supported,
        sufficient,
        rising,
        "",
        (),
        cohort.failures,
    )
    return replace(choice, sentence=_sentence(known, choice, cohort), remarks=tuple(_remarks(known, choice, cohort)))


def _with_gains(known: Mapping[int, CandidateScores]) -> dict[int, CandidateScores]:
    """Add what each candidate explains beyond the next smaller one."""
    numbers = sorted(known)
    gained = {numbers[0]: known[numbers[0]]}
    for smaller, c in itertools.pairwise(numbers):
        more = known[c].explained - known[smaller].explained  # (halvings,)
        candidate = replace(known[c].candidate, gain=float(more.median()), gain_spread=spread(more))
        gained[c] = replace(known[c], candidate=candidate)
    return gained


def _sufficient(known: Mapping[int, CandidateScores]) -> tuple[int, bool]:
    """Smallest C whose held-out likelihood is, slide by slide, within one standard error of the best; and whether that is the range's end."""
    best = max(known, key=lambda c: known[c].candidate.held_out)
    sufficient = next(c for c in sorted(known) if _as_good(known[c].by_unit, known[best].by_unit))
    largest = max(known)
    at_end = best == largest or _as_good(known[largest].by_unit, known[best].by_unit)
    return sufficient, at_end and (sufficient == largest or sufficient > LAST_STRETCH * largest)


def _as_good(units: Tensor, best: Tensor) -> bool:
    loss = best - units
    return float(loss.mean()) <= standard_error(loss)


def _choose(known: Mapping[int, CandidateScores], back: list[int], sufficient: int) -> int:
    within = [c for c in back if c <= sufficient]
    if within:
        return max(within)
    if back:
        return min(back)  # reproducible only above what the likelihood asks for: the smallest of them
    return max(known, key=lambda c: (known[c].candidate.share_back, c))


def _sentence(known: Mapping[int, CandidateScores], choice: Choice, cohort: HalvedCohort) -> str:
    c = choice.recommended
    found = known[c].candidate
    asked = f"fitted on either half of the {cohort.units} {cohort.unit} ({cohort.halvings} random halvings)"
    seen = f"{found.come_back:.1f} of {c} are found again in the other, and {found.stability_halves:.0%} of the assignments agree beyond chance"
    if choice.supported is None:
        return (
            f"No number from {min(known)} to {max(known)} gives prototypes that come back; C = {c} comes nearest: {asked}, {seen}. "
            "Do not read meaning into single prototypes."
        )
    if c > choice.sufficient:
        return f"C = {c}: the smallest number whose prototypes come back: {asked}, {seen}."
    if c < choice.supported[1]:
        return (
            f"C = {c}: more do not raise the likelihood of unseen {cohort.unit} by more than its standard error, and these come back: "
            f"{asked}, {seen}."
        )
    return f"C = {c}: the largest number whose prototypes come back: {asked}, {seen}."


def _remarks(known: Mapping[int, CandidateScores], choice: Choice, cohort: HalvedCohort) -> Iterator[str]:
    c, largest = choice.recommended, max(known)
    here, end = known[c].candidate, known[largest].candidate
    if c < largest:
        yield (
            f"What more buys: C = {largest} explains {end.explained:.1%} of the variance of unseen {cohort.unit} instead of {here.explained:.1%}, "
            f"and {end.come_back:.1f} of its {largest} prototypes come back."
        )
    if choice.still_rising:
        yield (
            f"The likelihood of unseen {cohort.unit} still rises at the end of the range: its best lies beyond C = {largest}, which is not an "
            "optimum but where the range ends"
            + (", and no reason to take prototypes that do not come back." if c < largest else ".")
        )
    if choice.supported is not None and choice.supported[1] == largest:
        yield f"Prototypes still come back at C = {largest}, where the range ends: look further (`range={min(known)}:{2 * largest}`)."
    if choice.supported is None and here.stability_seeds < NEARLY_ALL:
        yield (
            f"Two seeds on the same {cohort.unit} agree on {here.stability_seeds:.0%} of the assignments only: K-means itself is undecided, as the "
            "features have no sharp groups, and more slides alone would not change that."
        )
    if cohort.unit == PARTS:
        yield "There is one slide: its patches were halved, which cannot say whether prototypes come back in other slides."
    elif cohort.units < FEW_UNITS:
        yield (
            f"{cohort.units} {cohort.unit} are few: halves of {cohort.units // 2} differ by whom they happen to hold, so fewer prototypes come back "
            "than a larger cohort would support."
        )

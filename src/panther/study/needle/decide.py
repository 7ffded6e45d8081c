r"""Panoramic or a needle? A rule on scores of the same patients, made to say "undecided" rather than something wrong.

With the better look at the whole, :math:`w = \max(s_{\pi}, s_{means})`, and the better one at what stands out,
:math:`o = \max(s_{tail}, s_{max})`, on all patients and on every resample of them: it is a needle where :math:`o - w` is at least `MARGIN`, its
95 % interval lies above 0, and the 99 % interval of o (the better of two is lucky more often) above chance; panoramic where the same holds of
:math:`w - o` and w. Everything else is undecided.
"""

from dataclasses import dataclass

import numpy as np

from panther.evaluation.intervals import Interval, Resampled, differences, intervals
from panther.study.needle.looks import STANDS_OUT, WHOLE

MARGIN = 0.05  # of AUROC or c-index, below which a difference is none that somebody would change the method for
NEEDLE, PANORAMIC, UNDECIDED = "needle", "panoramic", "undecided"


@dataclass(frozen=True)
class Verdict:
    """What was decided, and on which numbers."""

    verdict: str
    whole: Interval  # score of the better look at the whole, 99 %
    stands_out: Interval  # of the better look at what stands out, 99 %
    difference: Interval  # the latter minus the former, 95 %
    chance: float
    best: tuple[str, str]  # these looks, on all patients

    @property
    def sees_something(self) -> bool:
        """Whether either side is surely above chance."""
        return bool(max(self.whole.low, self.stands_out.low) > self.chance)


def decide(scores: Resampled, chance: float) -> Verdict:
    """Verdict on scores of every look, on all patients and on the same resamples of them; larger is better."""
    whole, stands_out = (_better(scores, tuple(side)) for side in (WHOLE, STANDS_OUT))
    sides = [intervals(one[1], 0.99)["score"] for one in (whole, stands_out)]
    difference = differences(stands_out[1], whole[1])["score"]
    verdict = UNDECIDED
    if difference.value >= MARGIN and difference.low > 0 and sides[1].low > chance:
        verdict = NEEDLE
    elif difference.value <= -MARGIN and difference.high < 0 and sides[0].low > chance:
        verdict = PANORAMIC
    return Verdict(verdict, sides[0], sides[1], difference, chance, (whole[0], stands_out[0]))


def _better(scores: Resampled, looks: tuple[str, ...]) -> tuple[str, Resampled]:
    """The look that is better on all patients; and the score of the better one, on all and on each resample anew."""
    whole = {name: scores.whole[name] for name in looks}
    best = max(looks, key=lambda name: (not np.isnan(whole[name]), whole[name]))
    # NaN where a resample does not define both: the sides are compared on the same ones
    drawn = np.maximum.reduce([scores.drawn[name] for name in looks])
    return best, Resampled({"score": whole[best]}, {"score": drawn})

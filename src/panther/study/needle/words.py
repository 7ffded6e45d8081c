"""What a diagnosis says, in sentences."""

import numpy as np
import pandas as pd

from panther.evaluation.metric_names import metric_title
from panther.study.needle.decide import NEEDLE, PANORAMIC, Verdict
from panther.study.needle.looks import LOOKS

RARE = "prototypes: {rare: 4}"


def in_words(found: Verdict, metric: str, *, rare: bool) -> str:
    """A verdict as the end of a sentence; ``rare``: whether the study has rare prototypes already."""
    whole, stands_out = (
        f"{LOOKS[look]} {side.value:.3f}"
        for look, side in zip(found.best, (found.whole, found.stands_out), strict=True)
    )
    d = found.difference
    gap = f"difference {d.value:+.3f}, 95 % interval {d.low:+.3f} to {d.high:+.3f}"
    scores = f"{metric_title(metric)} of probes: {whole}, {stands_out}; {gap}"
    if found.verdict == NEEDLE:
        also = "" if rare else f" or rare prototypes ({RARE})"
        safer = (
            f"an attention network (abmil){also} is safer than proportions and means; put it beside PANTHER and compare"
        )
        return f"the task looks like a needle, what stands out of a slide tells more than the whole of it ({scores}); {safer}"
    if found.verdict == PANORAMIC:
        return f"the task looks panoramic, the whole of a slide tells more than what stands out of it ({scores}); PANTHER is at home here"
    if np.isnan(d.low):
        return "undecided, the inner folds are too small to be scored"
    if not found.sees_something:
        return f"undecided, no look tells surely more than a guess ({scores})"
    if d.low <= 0 <= d.high:
        return f"undecided, the difference between the whole of a slide and what stands out of it is within its uncertainty ({scores})"
    return f"undecided, the whole of a slide and what stands out of it tell nearly the same ({scores})"


def diagnosis_sentences(verdicts: pd.DataFrame) -> list[str]:
    """One for each encoder, and where there are several, whether they agree."""
    if verdicts.empty:
        return []
    several = len(verdicts) > 1
    said = [
        f"Diagnosis{', ' + row['encoder'] if several else ''}, from {row['patients']} training patients: {row['words']}."
        for _, row in verdicts.iterrows()
    ]
    kinds = list(dict.fromkeys(verdicts["verdict"]))
    if several and len(kinds) == 1:
        said.append(f"Diagnosis of the study: the encoders agree ({kinds[0]}).")
    elif several:
        said.append(f"Diagnosis of the study: the encoders do not agree ({', '.join(kinds)}); be cautious.")
    return said

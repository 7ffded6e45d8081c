"""What the commands say about a probe and about agreement, in lines of text."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from panther.explain.concordance.cohort import Cohort, SlideAgreement
from panther.explain.concordance.probe import TissueProbe

WAYS = {
    "members": "named by their members",
    "centroid": "by their centroid",
    "members_of_other_slides": "by other slides' members",
}


def probe_lines(probe: TissueProbe, output: Path) -> list[str]:
    """How well a probe does, class by class."""
    found = probe.evaluation
    size = max(5, *(len(name) for name in probe.classes))
    together = ", slides kept together" if found["slides_kept_together"] else ""
    return [
        f"{sum(found['tiles'].values())} tiles of {len(probe.classes)} classes -> {output} (encoder {probe.encoder})",
        f"{found['folds']}-fold cross-validation{together}: accuracy {found['accuracy']:.3f}, AUROC {found['auroc']:.3f}",
        f"  {'class':<{size}} tiles recall precision  taken for",
        *(_class_line(found, k, name, size) for k, name in enumerate(probe.classes)),
    ]


def probe_notes(probe: TissueProbe) -> list[str]:
    """What flatters the numbers."""
    if probe.evaluation["slides_kept_together"]:
        return []
    return [
        "Tiles of one slide may be on both sides of the cross-validation, which flatters; CLASS/SLIDE/tile.png keeps them together."
    ]


def cohort_lines(cohort: Cohort, output: Path, files: int) -> list[str]:
    """Agreement over the cohort, of each class, and of each slide's tumour."""
    found = cohort.agreement
    classes = cohort.question.labels.classes
    shares = ", ".join(f"{value:.3f} {WAYS[way]}" for way, value in cohort.others.items() if value is not None)
    count = len(cohort.counted)
    lines = [
        f"{count} slide{'s' if count > 1 else ''}, {int(cohort.naming.counts.sum()):,} patches with a class -> {output} ({files} files)",
        f"Patches whose prototype has their class: {shares}",
        f"Prototypes against classes: AMI {_number(found.ami)}, ARI {_number(found.ari)}; "
        f"once named: AMI {_number(found.ami_named)}, ARI {_number(found.ari_named)}",
    ]
    for k, (name, score) in enumerate(zip(classes, found.per_class, strict=True)):
        mine = " ".join(f"C{c}" for c in (cohort.naming.chosen == k).nonzero()[0]) or "none"
        lines.append(f"  {name}: {score.patches:,} patches, F1 {_number(score.f1)}, prototypes {mine}")
    return lines + [_tumour_line(one) for one in list(cohort.looked.values())[:20] if one.tumour is not None]


def _tumour_line(one: SlideAgreement) -> str:
    assert one.tumour is not None
    match = one.tumour
    alone, every = (
        f"AUROC {_number(auroc)}, Spearman {_number(spearman)}, Dice {_number(dice)}"
        for auroc, spearman, dice in (
            (match.auroc, match.spearman, match.dice),
            (match.auroc_all, match.spearman_all, match.dice_all),
        )
    )
    return f"  {one.slide}: C{match.prototype} (pi {match.weight:.2f}) finds tumour with {alone}; all tumour prototypes: {every}"


def _class_line(found: Mapping[str, Any], k: int, name: str, size: int) -> str:
    mistakes = sorted(
        (
            (-count, other)
            for other, count in zip(found["tiles"], found["confusion"][k], strict=True)
            if other != name and count
        )
    )
    taken = ", ".join(f"{other} {-count}" for count, other in mistakes[:3]) or "-"
    recall, precision = _number(found["recall"][name]), _number(found["precision"][name])
    return f"  {name:<{size}} {found['tiles'][name]:>5}  {recall:>5}     {precision:>5}  {taken}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"

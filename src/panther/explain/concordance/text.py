"""A tissue classifier and a concordance in lines of text."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from panther.explain.concordance.compare import Concordance, SlideAgreement
from panther.explain.concordance.tissue_classifier import TissueClassifier

WAYS = {
    "members": "named by their members",
    "centroid": "by their centroid",
    "members_of_other_slides": "by other slides' members",
}


def classifier_lines(classifier: TissueClassifier, output: Path) -> list[str]:
    """How well a classifier does, class by class."""
    found, classes = classifier.evaluation, classifier.classes
    size = max(5, *(len(name) for name in classes))
    together = ", slides kept together" if found["slides_kept_together"] else ""
    return [
        f"{sum(found['tiles'].values())} tiles of {len(classes)} classes -> {output} (encoder {classifier.encoder})",
        f"{found['folds']}-fold cross-validation{together}: accuracy {found['accuracy']:.3f}, AUROC {found['auroc']:.3f}",
        f"  {'class':<{size}} tiles recall precision  taken for",
        *(_class_line(found, k, name, size) for k, name in enumerate(classes)),
    ]


def classifier_notes(classifier: TissueClassifier) -> list[str]:
    """What flatters the numbers."""
    if classifier.evaluation["slides_kept_together"]:
        return []
    return [
        "Tiles of one slide may be on both sides of the cross-validation, which flatters; CLASS/SLIDE/tile.png keeps them together."
    ]


def concordance_lines(found: Concordance, output: Path) -> list[str]:
    """Agreement over the cohort, of each class, and of each slide's tumour."""
    agreed, count = found.agreement, len(found.counts)
    shares = ", ".join(f"{value:.3f} {WAYS[way]}" for way, value in found.accuracy_by.items() if value is not None)
    patches = int(found.classes.counts.sum())
    lines = [
        f"{count} slide{'s' if count > 1 else ''}, {patches:,} patches with a class -> {output} ({len(found.files)} files)",
        f"Patches whose prototype has their class: {shares}",
        f"Prototypes against classes: AMI {_number(agreed.ami)}, ARI {_number(agreed.ari)}; "
        f"once named: AMI {_number(agreed.ami_named)}, ARI {_number(agreed.ari_named)}",
    ]
    for k, (name, score) in enumerate(zip(found.settings.labels.classes, agreed.per_class, strict=True)):
        own = " ".join(f"C{c}" for c in (found.classes.chosen == k).nonzero()[0]) or "none"
        lines.append(f"  {name}: {score.patches:,} patches, F1 {_number(score.f1)}, prototypes {own}")
    return lines + [_tumour_line(one) for one in list(found.slides.values())[:20] if one.tumour is not None]


def _tumour_line(one: SlideAgreement) -> str:
    match = one.tumour
    assert match is not None
    alone = _scores(match.auroc, match.spearman, match.dice)
    every = _scores(match.auroc_all, match.spearman_all, match.dice_all)
    return f"  {one.slide}: C{match.prototype} (pi {match.weight:.2f}) finds tumour with {alone}; all tumour prototypes: {every}"


def _scores(auroc: float | None, spearman: float | None, dice: float | None) -> str:
    return f"AUROC {_number(auroc)}, Spearman {_number(spearman)}, Dice {_number(dice)}"


def _class_line(found: Mapping[str, Any], k: int, name: str, size: int) -> str:
    counts = zip(found["tiles"], found["confusion"][k], strict=True)
    mistakes = sorted((-count, other) for other, count in counts if other != name and count)
    taken = ", ".join(f"{other} {-count}" for count, other in mistakes[:3]) or "-"
    recall, precision = _number(found["recall"][name]), _number(found["precision"][name])
    return f"  {name:<{size}} {found['tiles'][name]:>5}  {recall:>5}     {precision:>5}  {taken}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"

"""A concordance as files and as lines of text; a tissue classifier as lines of text."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from panther.charts.style import save
from panther.explain import palette
from panther.explain.concordance.agreement import UNKNOWN, Agreement
from panther.explain.concordance.compare import Concordance, SlideAgreement, SlideCounts
from panther.explain.concordance.draw import class_chart
from panther.explain.concordance.tissue_classifier import TissueClassifier
from panther.explain.names import Naming, colours, entry, label
from panther.storage.files import write_json, write_text
from panther.storage.tables import write_spreadsheet
from panther.version import __version__

FORMAT = 1
CONCORDANCE = "concordance.json"
PURE = 0.7  # share of one class from which a prototype is named by it alone
WRITTEN = ("concordance.*", "*.csv", "names.suggested.yaml", "*.classes.png", "*.tumour.png")  # patterns
SATURATED = 0.9  # share of patches from which a note is due
WAYS = {
    "members": "named by their members",
    "centroid": "by their centroid",
    "members_of_other_slides": "by other slides' members",
}


def write_concordance(concordance: Concordance, folder: Path) -> list[Path]:
    """Write everything that is not of one slide; returns the files."""
    content = to_dict(concordance)
    write_json(folder / CONCORDANCE, content)
    tables = {
        "prototypes.csv": _flat(content["prototypes"]),
        "classes.csv": _flat(content["per_class"]),
        "slides.csv": _flat(content["slides"]),
        "confusion.csv": _confusion(concordance),
    }
    for name, (header, rows) in tables.items():
        write_spreadsheet(folder / name, header, rows)
    write_text(folder / "names.suggested.yaml", suggested_names(concordance))
    names = [label(c, concordance.settings.maps.names) for c in range(len(concordance.settings.prototypes))]
    save(class_chart(content, names).figure(), folder / "concordance.png")
    return [folder / name for name in (CONCORDANCE, *tables, "names.suggested.yaml", "concordance.png")]


def to_dict(concordance: Concordance) -> dict[str, Any]:
    """Plain values; None where a number is not defined."""
    settings, agreed, counts = concordance.settings, concordance.agreement, concordance.classes.counts
    classes = settings.labels.classes
    return {
        "format": FORMAT,
        "version": __version__,
        "source": settings.labels.to_dict(),
        "settings": {"method": settings.maps.method, **settings.maps.options, "by": settings.class_from},
        "prototypes_hash": settings.prototypes.content_hash(),
        "classes": [{"class": name, "colour": palette.colour(k)} for k, name in enumerate(classes)],
        "positive": [classes[k] for k in settings.positive],
        "tumour_prototypes": list(concordance.classes.tumour),
        "prototypes": [_prototype(concordance, c) for c in range(len(settings.prototypes))],
        "confusion": counts.tolist(),  # C x K patches
        "agreement": {
            **_numbers(agreed),
            "patches": int(counts.sum()),
            "unlabelled": sum(one.patches for one in concordance.counts) - int(counts.sum()),
            "slides": len(concordance.counts),
            "accuracy_by": concordance.accuracy_by,
            "table": agreed.table.tolist(),  # K x K: rows the patch's class, columns its prototype's
        },
        "per_class": [{"class": name, **asdict(score)} for name, score in zip(classes, agreed.per_class, strict=True)],
        "slides": [_slide(one, concordance.slides.get(one.slide)) for one in concordance.counts],
        "notes": list(concordance.notes),
    }


def suggested_names(concordance: Concordance) -> str:
    """YAML for --names: given names stay, others are the class, or the two commonest where none is clear."""
    lines = [
        "# Suggested by `panther concordance`: look at the patches, correct, save as names.yaml, then: panther atlas ... --names names.yaml\n"
    ]
    for c, counts in enumerate(concordance.classes.counts):
        name = concordance.settings.maps.names.get(c) or _suggested(concordance, c)
        members = int(counts.sum())
        comment = f"  # {concordance.classes.share[c]:.0%} of {members:,} patches" if members else "  # no patches"
        given = replace(concordance.settings.maps.namings.get(c, Naming()), name=name)
        lines.append(f"C{c}: {entry(given)}".rstrip() + comment + "\n")
    return "".join(lines)


def saturation_note(concordance: Concordance) -> list[str]:
    """Sentence where posteriors are so near 0 and 1 that a heatmap shows only two colours."""
    parts = [one.tumour.saturated for one in concordance.slides.values() if one.tumour is not None]
    # other methods' shares are hard, or are not posteriors, by design
    if concordance.settings.maps.method != "panther" or not parts or float(np.median(parts)) < SATURATED:
        return []
    return [
        f"Posteriors are within 0.01 of 0 or 1 in {np.median(parts):.0%} of a slide's patches (median): in {concordance.settings.prototypes.dim} "
        "dimensions they saturate, so the heatmap is nearly a mask (ranks still tell small from smaller); the setting temperature=10 softens it."
    ]


def _suggested(concordance: Concordance, c: int) -> str:
    counts, classes = concordance.classes.counts[c], concordance.settings.labels.classes
    chosen = int(concordance.classes.chosen[c])
    if chosen == UNKNOWN or not counts.sum():
        return classes[chosen] if chosen != UNKNOWN else ""
    other = int(np.argsort(-counts, kind="stable")[0 if counts.argmax() != chosen else 1])
    mixed = concordance.classes.share[c] < PURE and counts[other] > 0
    return f"{classes[chosen]}, with {classes[other]}" if mixed else classes[chosen]


def _prototype(concordance: Concordance, c: int) -> dict[str, Any]:
    classes, own = concordance.settings.labels.classes, concordance.classes
    return {
        "prototype": c,
        "name": concordance.settings.maps.names.get(c),
        "colour": colours(concordance.settings.maps.namings, len(concordance.settings.prototypes))[c],
        "class": _class(classes, int(own.chosen[c])),
        "share": float(own.share[c]),
        "patches": int(own.counts[c].sum()),
        "class_of_members": _class(classes, int(own.members[c])),
        "class_of_centroid": None if own.centroid is None else _class(classes, int(own.centroid[c])),
        "suggested": _suggested(concordance, c) or None,
    }


def _slide(counted: SlideCounts, judged: SlideAgreement | None) -> dict[str, Any]:
    row: dict[str, Any] = {
        "slide": counted.slide,
        "patches": counted.patches,
        "labelled": int(counted.counts.sum()),
    }
    if judged is None:
        return row
    tumour = {} if judged.tumour is None else asdict(judged.tumour)
    row |= _numbers(judged.agreement) | {f"tumour_{name}": value for name, value in tumour.items()}
    return row | {"files": [file.name for file in judged.files]}


def _numbers(agreement: Agreement) -> dict[str, float | None]:
    return {name: getattr(agreement, name) for name in ("accuracy", "ari", "ami", "ari_named", "ami_named")}


def _class(classes: tuple[str, ...], number: int) -> str | None:
    return None if number == UNKNOWN else classes[number]


def _flat(rows: list[dict[str, Any]]) -> tuple[list[str], list[list[Any]]]:
    """Header and rows of plain values; what one row has and another has not is left empty."""
    header = list(dict.fromkeys(name for row in rows for name, value in row.items() if not isinstance(value, list)))
    return header, [["" if row.get(name) is None else row[name] for name in header] for row in rows]


def _confusion(concordance: Concordance) -> tuple[list[str], list[list[Any]]]:
    counts = concordance.classes.counts
    shares = counts / np.maximum(counts.sum(1), 1)[:, None]
    header = ["prototype", "patches", *(f"share {name}" for name in concordance.settings.labels.classes)]
    return header, [[f"C{c}", int(counts[c].sum()), *map(float, row)] for c, row in enumerate(shares)]


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


def concordance_lines(concordance: Concordance, output: Path) -> list[str]:
    """Agreement over the cohort, of each class, and of each slide's tumour."""
    agreed, count = concordance.agreement, len(concordance.counts)
    shares = ", ".join(
        f"{value:.3f} {WAYS[way]}" for way, value in concordance.accuracy_by.items() if value is not None
    )
    patches = int(concordance.classes.counts.sum())
    lines = [
        f"{count} slide{'s' if count > 1 else ''}, {patches:,} patches with a class -> {output} ({len(concordance.files)} files)",
        f"Patches whose prototype has their class: {shares}",
        f"Prototypes against classes: AMI {_number(agreed.ami)}, ARI {_number(agreed.ari)}; "
        f"once named: AMI {_number(agreed.ami_named)}, ARI {_number(agreed.ari_named)}",
    ]
    for k, (name, score) in enumerate(zip(concordance.settings.labels.classes, agreed.per_class, strict=True)):
        own = " ".join(f"C{c}" for c in (concordance.classes.chosen == k).nonzero()[0]) or "none"
        lines.append(f"  {name}: {score.patches:,} patches, F1 {_number(score.f1)}, prototypes {own}")
    return lines + [_tumour_line(one) for one in list(concordance.slides.values())[:20] if one.tumour is not None]


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

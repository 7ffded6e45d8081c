"""Agreement as files: JSON for programs, CSV for spreadsheets, names to start from, a picture of the table."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from panther.charts.style import save
from panther.explain import palette
from panther.explain.concordance.cohort import Cohort, tumour_prototypes
from panther.explain.concordance.draw import class_chart
from panther.explain.concordance.mathematics import UNKNOWN, Agreement
from panther.explain.names import label
from panther.storage.files import write_json, write_text
from panther.storage.tables import write_spreadsheet
from panther.version import __version__

FORMAT = 1
PURE = 0.7  # share of one class from which a prototype is named by it alone
WRITTEN = ("concordance.*", "*.csv", "names.suggested.yaml", "*.classes.png", "*.tumour.png")  # patterns
SATURATED = 0.9  # share of patches from which a note is due


def write_cohort(cohort: Cohort, folder: Path, notes: list[str]) -> list[Path]:
    """Write everything that is not of one slide; returns the files."""
    told = tell(cohort, notes)
    write_json(folder / "concordance.json", told)
    tables = {
        "prototypes.csv": _flat(told["prototypes"]),
        "classes.csv": _flat(told["per_class"]),
        "slides.csv": _flat(told["slides"]),
        "confusion.csv": _confusion(cohort),
    }
    for name, (header, rows) in tables.items():
        write_spreadsheet(folder / name, header, rows)
    write_text(folder / "names.suggested.yaml", suggested_names(cohort))
    names = [label(c, dict(cohort.question.maps.names)) for c in range(len(cohort.question.prototypes))]
    save(class_chart(told, names).figure(), folder / "concordance.png")
    return [folder / name for name in ("concordance.json", *tables, "names.suggested.yaml", "concordance.png")]


def tell(cohort: Cohort, notes: list[str]) -> dict[str, Any]:
    """Plain values; None where a number is not defined."""
    question, found = cohort.question, cohort.agreement
    classes = question.labels.classes
    return {
        "format": FORMAT,
        "version": __version__,
        "source": question.labels.told(),
        "settings": {"method": question.maps.method, **question.maps.options, "by": question.by},
        "prototypes_hash": question.prototypes.content_hash(),
        "classes": [{"class": name, "colour": palette.colour(k)} for k, name in enumerate(classes)],
        "positive": [classes[k] for k in question.positive],
        "tumour_prototypes": tumour_prototypes(cohort.naming, question) if question.positive else [],
        "prototypes": [_prototype(cohort, c) for c in range(len(question.prototypes))],
        "confusion": cohort.naming.counts.tolist(),  # C x K patches
        "agreement": {
            **_numbers(found),
            "patches": int(cohort.naming.counts.sum()),
            "unlabelled": sum(one.patches for one in cohort.counted) - int(cohort.naming.counts.sum()),
            "slides": len(cohort.counted),
            "accuracy_by": cohort.others,
            "table": found.table.tolist(),  # K x K: rows the patch's class, columns its prototype's
        },
        "per_class": [{"class": name, **asdict(score)} for name, score in zip(classes, found.per_class, strict=True)],
        "slides": [_slide(cohort, number) for number in range(len(cohort.counted))],
        "notes": notes,
    }


def suggested_names(cohort: Cohort) -> str:
    """YAML for --names: given names stay, others are the class, or the two commonest where none is clear."""
    import yaml

    lines = [
        "# Suggested by `panther concordance`: look at the patches, correct, save as names.yaml, then: panther atlas ... --names names.yaml\n"
    ]
    for c, counts in enumerate(cohort.naming.counts):
        name = cohort.question.maps.names.get(c) or _suggested(cohort, c)
        members = int(counts.sum())
        comment = f"  # {cohort.naming.share[c]:.0%} of {members:,} patches" if members else "  # no patches"
        # a very long line: a name is never folded
        lines.append(yaml.safe_dump({f"C{c}": name}, allow_unicode=True, width=100_000).rstrip("\n") + comment + "\n")
    return "".join(lines)


def saturation_note(cohort: Cohort) -> str | None:
    """Sentence where posteriors are so near 0 and 1 that a heatmap shows only two colours."""
    found = [one.tumour.saturated for one in cohort.looked.values() if one.tumour is not None]
    if cohort.question.maps.method != "panther" or not found or float(np.median(found)) < SATURATED:
        return None  # other methods' shares are hard, or are not posteriors, by design
    return (
        f"Posteriors are within 0.01 of 0 or 1 in {np.median(found):.0%} of a slide's patches (median): in {cohort.question.prototypes.dim} "
        "dimensions they saturate, so the heatmap is nearly a mask (ranks still tell small from smaller); -s temperature=10 softens it."
    )


def _suggested(cohort: Cohort, c: int) -> str:
    counts, classes = cohort.naming.counts[c], cohort.question.labels.classes
    chosen = int(cohort.naming.chosen[c])
    if chosen == UNKNOWN or not counts.sum():
        return classes[chosen] if chosen != UNKNOWN else ""
    other = int(np.argsort(-counts, kind="stable")[0 if counts.argmax() != chosen else 1])
    mixed = cohort.naming.share[c] < PURE and counts[other] > 0
    return f"{classes[chosen]}, with {classes[other]}" if mixed else classes[chosen]


def _prototype(cohort: Cohort, c: int) -> dict[str, Any]:
    classes, naming = cohort.question.labels.classes, cohort.naming
    return {
        "prototype": c,
        "name": cohort.question.maps.names.get(c),
        "colour": palette.colour(c),
        "class": _class(classes, int(naming.chosen[c])),
        "share": float(naming.share[c]),
        "patches": int(naming.counts[c].sum()),
        "class_of_members": _class(classes, int(naming.members[c])),
        "class_of_centroid": None if naming.centroid is None else _class(classes, int(naming.centroid[c])),
        "suggested": _suggested(cohort, c) or None,
    }


def _slide(cohort: Cohort, number: int) -> dict[str, Any]:
    counted = cohort.counted[number]
    looked = cohort.looked.get(counted.slide)
    labelled = int(counted.counts.sum())
    told: dict[str, Any] = {"slide": counted.slide, "patches": counted.patches, "labelled": labelled}
    if looked is None:
        return told
    told |= _numbers(looked.agreement)
    tumour = {} if looked.tumour is None else {f"tumour_{name}": value for name, value in asdict(looked.tumour).items()}
    return told | tumour | {"files": [file.name for file in looked.files]}


def _numbers(found: Agreement) -> dict[str, float | None]:
    return {name: getattr(found, name) for name in ("accuracy", "ari", "ami", "ari_named", "ami_named")}


def _class(classes: tuple[str, ...], number: int) -> str | None:
    return None if number == UNKNOWN else classes[number]


def _flat(rows: list[dict[str, Any]]) -> tuple[list[str], list[list[Any]]]:
    """Header and rows of plain values; what one row has and another has not is left empty."""
    header = list(dict.fromkeys(name for row in rows for name, value in row.items() if not isinstance(value, list)))
    return header, [["" if row.get(name) is None else row[name] for name in header] for row in rows]


def _confusion(cohort: Cohort) -> tuple[list[str], list[list[Any]]]:
    counts = cohort.naming.counts
    shares = counts / np.maximum(counts.sum(1), 1)[:, None]
    header = ["prototype", "patches", *(f"share {name}" for name in cohort.question.labels.classes)]
    return header, [[f"C{c}", int(counts[c].sum()), *map(float, row)] for c, row in enumerate(shares)]

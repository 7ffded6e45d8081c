"""Concordance: agreement of unsupervised prototypes with tissue classes, from a classifier or from labelled patches.

The patches of every slide are counted, prototypes get their classes, then each slide is compared.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, astuple, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from panther.aggregators import build
from panther.charts.style import save
from panther.explain.concordance.agreement import (
    UNKNOWN,
    Agreement,
    TumourMatch,
    agreement,
    contingency,
    format_number,
    left_out_accuracy,
    majority,
    match_tumour,
    tissue_of,
)
from panther.explain.concordance.draw import class_chart, class_maps, draw_classes, draw_tumour
from panther.explain.concordance.tissue_classifier import PatchLabels, TissueClassifier
from panther.explain.maps import map_slide
from panther.explain.names import Naming, class_colours, colours, entry, label
from panther.explain.scene import Assigned, MapSettings, SlideJob, assign
from panther.storage.files import write_json, write_text
from panther.storage.tables import write_spreadsheet
from panther.types import Bag, Prototypes
from panther.version import __version__

FORMAT = 1
CONCORDANCE = "concordance.json"
WRITTEN = ("concordance.*", "*.csv", "names.suggested.yaml", "*.classes.png", "*.tumour.png")  # patterns
PURE = 0.7  # share of one class from which a prototype is named by it alone
TUMOUR = "AUROC {}, Spearman {}, Dice {}; all tumour prototypes: AUROC {}, Spearman {}, Dice {}"
NAMES_HEAD = "# Suggested by `panther concordance`: look at the patches, correct, save as names.yaml, then: panther atlas ... --names names.yaml\n"


@dataclass(frozen=True)
class ConcordanceSettings:
    """Settings of the comparison and of the pictures, the same for all slides."""

    prototypes: Prototypes
    labels: TissueClassifier | PatchLabels  # source of the patches' classes
    maps: MapSettings
    positive: tuple[int, ...] = ()  # classes that are tumour


@dataclass(frozen=True)
class PrototypeClasses:
    """Classes of the prototypes; UNKNOWN for one without patches."""

    counts: np.ndarray  # (C, K) of the cohort
    chosen: np.ndarray  # (C,) commonest class of the members
    tumour: tuple[int, ...] = ()  # prototypes of a positive class

    @property
    def share(self) -> np.ndarray:
        """Share of members that have the prototype's class, (C,); 0 where there are none."""
        rows = np.arange(len(self.counts))
        return np.where(self.chosen == UNKNOWN, 0, self.counts[rows, self.chosen]) / np.maximum(self.counts.sum(1), 1)


@dataclass(frozen=True)
class SlideAgreement:
    """One slide: counted in the first pass, its tumour compared and drawn in the second."""

    slide: str
    counts: np.ndarray  # (C, K) patches
    patches: int  # also those without a label
    tumour: TumourMatch | None = None
    files: tuple[Path, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Concordance:
    """Agreement of prototypes and tissue classes, over the cohort and on each slide."""

    settings: ConcordanceSettings
    classes: PrototypeClasses
    slides: Mapping[str, SlideAgreement]
    notes: tuple[str, ...] = ()
    failures: Mapping[str, str] = field(default_factory=dict)  # slide -> sentence
    files: tuple[Path, ...] = ()  # that were written

    @cached_property
    def agreement(self) -> Agreement:
        """Over all patches."""
        return agreement(self.classes.counts, self.classes.chosen)

    @cached_property
    def accuracy_by(self) -> dict[str, float | None]:
        """Share of patches of their prototype's class, which its members have on all slides, or on the other slides."""
        left_out = left_out_accuracy([slide.counts for slide in self.slides.values()])
        return {"members": self.agreement.accuracy, "members_of_other_slides": left_out}

    def suggested(self, c: int) -> str:
        """Name for a prototype: its class, or its two commonest where none is clear."""
        counts, classes, chosen = self.classes.counts[c], self.settings.labels.classes, int(self.classes.chosen[c])
        if chosen == UNKNOWN:
            return ""
        other = next(k for k in np.argsort(-counts, kind="stable") if k != chosen)
        is_mixed = self.classes.share[c] < PURE and counts[other] > 0
        return f"{classes[chosen]}, with {classes[other]}" if is_mixed else classes[chosen]

    def to_lines(self) -> list[str]:
        """Agreement over the cohort, of each class, and of each slide's tumour."""
        agreed, count, classes = self.agreement, len(self.slides), self.settings.labels.classes
        ami, ari, ami_named, ari_named, named, left_out = map(
            format_number,
            (agreed.ami, agreed.ari, agreed.ami_named, agreed.ari_named, *self.accuracy_by.values()),
        )
        lines = [
            f"{count} slide{'s' if count > 1 else ''}, {int(self.classes.counts.sum()):,} patches with a class ({len(self.files)} files)",
            f"Patches whose prototype has their class: {named} named by their members, {left_out} by other slides' members",
            f"Prototypes against classes: AMI {ami}, ARI {ari}; once named: AMI {ami_named}, ARI {ari_named}",
        ]
        for k, (name, score) in enumerate(zip(classes, agreed.per_class, strict=True)):
            prototypes = " ".join(f"C{c}" for c in (self.classes.chosen == k).nonzero()[0]) or "none"
            lines.append(f"  {name}: {score.patches:,} patches, F1 {format_number(score.f1)}, prototypes {prototypes}")
        for slide in list(self.slides.values())[:20]:
            if (match := slide.tumour) is not None:
                scores = TUMOUR.format(*map(format_number, astuple(match)[2:8]))
                lines.append(f"  {slide.slide}: C{match.prototype} (pi {match.weight:.2f}) finds tumour with {scores}")
        return lines

    def to_json(self) -> dict[str, Any]:
        """Files that were written, and the content of `concordance.json`."""
        return {"files": [str(file) for file in self.files], **self.content()}

    def content(self) -> dict[str, Any]:
        """Plain values; None where a number is not defined."""
        settings, classes, counts = self.settings, self.classes, self.classes.counts
        names = [*settings.labels.classes, None]  # UNKNOWN is the last
        labelled = int(counts.sum())
        shades = class_colours(settings.labels.classes, settings.maps.namings, len(counts))
        by_class = zip(settings.labels.classes, self.agreement.per_class, strict=True)
        return {
            "format": FORMAT,
            "version": __version__,
            "source": settings.labels.to_dict(),
            "settings": {"method": settings.maps.method, **settings.maps.options},
            "prototypes_hash": settings.prototypes.content_hash(),
            "classes": [
                {"class": name, "colour": colour} for name, colour in zip(settings.labels.classes, shades, strict=True)
            ],
            "positive": [names[k] for k in settings.positive],
            "tumour_prototypes": list(classes.tumour),
            "prototypes": [
                {
                    "prototype": c,
                    "name": settings.maps.names.get(c),
                    "colour": colour,
                    "class": names[classes.chosen[c]],
                    "share": float(classes.share[c]),
                    "patches": int(counts[c].sum()),
                    "suggested": self.suggested(c) or None,
                }
                for c, colour in enumerate(colours(settings.maps.namings, len(counts)))
            ],
            "confusion": counts.tolist(),  # C x K patches
            "agreement": {
                **_numbers(self.agreement),
                "patches": labelled,
                "unlabelled": sum(slide.patches for slide in self.slides.values()) - labelled,
                "slides": len(self.slides),
                "accuracy_by": self.accuracy_by,
                "table": self.agreement.table.tolist(),  # K x K: rows the patch's class, columns its prototype's
            },
            "per_class": [{"class": name, **asdict(score)} for name, score in by_class],
            "slides": [_row(slide, classes.chosen) for slide in self.slides.values()],
            "notes": list(self.notes),
        }


def assign_patches(bag: Bag, settings: ConcordanceSettings) -> Assigned:
    """Shares of the prototypes in the patches of a bag."""
    module = build(settings.maps.method, settings.prototypes, settings.maps.options)
    return assign(settings.prototypes.prepared(bag), module, settings.maps.device)


def count_slide(job: SlideJob, settings: ConcordanceSettings) -> SlideAgreement:
    """First pass: patches of each prototype and class."""
    bag = job.ref.open()
    labels = assign_patches(bag, settings).assignment.argmax(1).numpy()
    shape = len(settings.prototypes), len(settings.labels.classes)
    return SlideAgreement(bag.slide_id, contingency(labels, tissue_of(settings.labels.label(bag)), shape), len(bag))


def name_prototypes(counted: Iterable[SlideAgreement], settings: ConcordanceSettings) -> PrototypeClasses:
    """Classes of the prototypes from all slides' counts."""
    counts = np.sum([slide.counts for slide in counted], 0)
    chosen = majority(counts)
    return PrototypeClasses(counts, chosen, tuple(np.flatnonzero(np.isin(chosen, settings.positive)).tolist()))


def compare_slide(
    slide: tuple[SlideJob, SlideAgreement],
    settings: ConcordanceSettings,
    classes: PrototypeClasses,
    folder: Path | None,
) -> SlideAgreement:
    """Second pass: one slide's tumour prototype, and its pictures where ``folder`` is given."""
    job, counted = slide
    if folder is None and not classes.tumour:
        return counted
    bag = job.ref.open()
    probabilities = settings.labels.label(bag)
    tumour = probabilities[:, list(settings.positive)].sum(1)  # NaN stays NaN
    if folder is None or bag.places is None:
        rows, weights = assign_patches(bag, settings)
        match = match_tumour(rows.float().numpy(), weights.numpy(), tumour, classes.tumour)
        missing = f"{counted.slide}: no coordinates in the file, so there are no pictures of it."
        return replace(counted, tumour=match, notes=() if folder is None else (missing,))
    slide_map = map_slide(bag, settings.prototypes, settings.maps, job.image)
    match = match_tumour(slide_map.assignment, slide_map.weights, tumour, classes.tumour)
    maps = class_maps(slide_map, classes.chosen, tissue_of(probabilities), settings.labels.classes)
    pictures = {"classes": draw_classes(slide_map, *maps)}
    if match is not None:
        title = " + ".join(settings.labels.classes[k] for k in settings.positive)
        pictures["tumour"] = draw_tumour(slide_map, tumour, match, classes.tumour, title)
    files = {folder / f"{slide_map.slide}.{name}.png": figure for name, figure in pictures.items()}
    for file, figure in files.items():
        save(figure, file)
    return replace(counted, tumour=match, files=tuple(files), notes=job.notes)


def write_concordance(concordance: Concordance, folder: Path) -> list[Path]:
    """Write everything that is not of one slide; returns the files."""
    content, settings, classes = concordance.content(), concordance.settings, concordance.classes
    members = classes.counts.sum(1)
    shares = (classes.counts / np.maximum(members, 1)[:, None]).tolist()
    tables = {
        "prototypes.csv": _flat(content["prototypes"]),
        "classes.csv": _flat(content["per_class"]),
        "slides.csv": _flat(content["slides"]),
        "confusion.csv": (
            ["prototype", "patches", *(f"share {name}" for name in settings.labels.classes)],
            [[f"C{c}", int(members[c]), *row] for c, row in enumerate(shares)],
        ),
    }
    write_json(folder / CONCORDANCE, content)
    for name, (header, rows) in tables.items():
        write_spreadsheet(folder / name, header, rows)
    lines = [NAMES_HEAD]
    for c, share in enumerate(classes.share):  # names that prototypes have stay
        comment = f"  # {share:.0%} of {members[c]:,} patches" if members[c] else "  # no patches"
        naming = settings.maps.namings.get(c, Naming())
        naming = replace(naming, name=naming.name or concordance.suggested(c))
        lines.append(f"C{c}: {entry(naming)}".rstrip() + comment + "\n")
    write_text(folder / "names.suggested.yaml", "".join(lines))
    names = [label(c, settings.maps.names) for c in range(len(members))]
    save(class_chart(content, names).figure(), folder / "concordance.png")
    return [folder / name for name in (CONCORDANCE, *tables, "names.suggested.yaml", "concordance.png")]


def _row(slide: SlideAgreement, chosen: np.ndarray) -> dict[str, Any]:
    row = {"slide": slide.slide, "patches": slide.patches, "labelled": int(slide.counts.sum())}
    tumour = {} if slide.tumour is None else asdict(slide.tumour)
    numbers = _numbers(agreement(slide.counts, chosen)) | {f"tumour_{name}": value for name, value in tumour.items()}
    return {**row, **numbers, "files": [file.name for file in slide.files]}


def _numbers(agreement: Agreement) -> dict[str, float | None]:
    return {name: getattr(agreement, name) for name in ("accuracy", "ari", "ami", "ari_named", "ami_named")}


def _flat(rows: list[dict[str, Any]]) -> tuple[list[str], list[list[Any]]]:
    """Header and rows of plain values; a value that a row lacks is left empty."""
    header = list(dict.fromkeys(name for row in rows for name, value in row.items() if not isinstance(value, list)))
    return header, [["" if row.get(name) is None else row[name] for name in header] for row in rows]

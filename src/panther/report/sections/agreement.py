"""Tab: do prototypes, found without labels, agree with classes of tissue that people named?"""

from typing import Any

import numpy as np

from panther.explain.concordance.draw import class_chart
from panther.report.html import DASH, Html, details, join, listing, number, paragraph, table, tag
from panther.report.material import Artefact, Material
from panther.report.plots import plot
from panther.report.sections.pictures import by_slide, gallery

MOST_ROWS = 60
KINDS = (".classes", ".tumour")  # of pictures of a slide
WORDS = {
    "accuracy": "share of patches whose prototype has the class of the patch",
    "ari": "adjusted Rand index, prototypes against classes",
    "ami": "adjusted mutual information, prototypes against classes",
    "ari_named": "adjusted Rand index, prototypes joined by their class",
    "ami_named": "adjusted mutual information, prototypes joined by their class",
}


def agreement(material: Material) -> Html | None:
    """What `panther concordance` found: its numbers, the confusion, its pictures."""
    found = material.artefacts.get("agreement")
    if found is None:
        return None
    numbers = found.content.get("agreement") or {}
    pictures = {
        f"{slide}, {kind.removeprefix('.')}": path
        for slide, kinds in by_slide(found.folder, KINDS).items()
        for kind, path in kinds.items()
    }
    return join(
        tag("h2", "Tissue classes"),
        paragraph(
            "Each prototype gets the class that most of its patches have, by a classifier trained on labelled tissue or by people's own labels. "
            "Where the two agree, a prototype is a kind of tissue that a pathologist would also name."
        ),
        table(["agreement", "value"], [[WORDS[k], _cell(numbers[k])] for k in WORDS if k in numbers])
        if numbers
        else None,
        _confusion(material, found),
        gallery(material, pictures, "Agreement with tissue classes on {}"),
        listing(found.content.get("notes", []), class_="notes"),
        *(details(title, _records(found.rows(key))) for key, title in _TABLES.items() if found.rows(key)),
    )


_TABLES = {"per_class": "Each class", "prototypes": "Each prototype", "slides": "Each slide"}


def _confusion(material: Material, found: Artefact) -> Html | None:
    counts, classes = found.content.get("confusion"), [str(row["class"]) for row in found.rows("classes")]
    prototypes = [material.prototype(row["prototype"], row.get("name")) for row in found.rows("prototypes")]
    if not counts or np.shape(counts) != (len(prototypes), len(classes)):
        return None
    said = (
        "Share of each class (columns) in the patches of each prototype (rows). A good prototype has one filled cell."
    )
    return plot("tissue-classes", class_chart(found.content, prototypes), said, widest=420 + 90 * len(classes))


def _records(rows: list[dict[str, Any]]) -> Html:
    """Records as a table: the columns that hold one value each."""
    columns = [key for key in rows[0] if not any(isinstance(row.get(key), (dict, list)) for row in rows)]
    cells = [[_cell(row.get(key)) for key in columns] for row in rows[:MOST_ROWS]]
    caption = f"The first {MOST_ROWS} of {len(rows)}" if len(rows) > MOST_ROWS else None
    return table([_words(key) for key in columns], cells, caption)


def _cell(value: Any) -> str:
    if value is None:
        return DASH
    return number(value) if isinstance(value, float) else str(value)


def _words(key: str) -> str:
    return key.replace("_", " ")

"""Tabs: the atlas (what each prototype looks like, how much of it there is, in whom, beside what), and whether prototypes agree with
tissue classes that people named.
"""

from typing import Any

import numpy as np

from panther.errors import InputError
from panther.explain.atlas_files import group_charts, relation_charts, share_chart
from panther.explain.concordance.draw import class_chart
from panther.explain.palette import colour as colour_of
from panther.report.html import (
    DASH,
    Html,
    choice,
    details,
    join,
    listing,
    number,
    p_value,
    paragraph,
    picture,
    plot,
    table,
    tag,
)
from panther.report.material import Artefact, Material
from panther.report.sections.pictures import by_slide, gallery

SHOWN = {"nearest": "Most typical", "random": "Drawn at random"}
MOST = 5  # exemplars of a kind
SIDE = 160
TABLES = {"per_class": "Each class", "prototypes": "Each prototype", "slides": "Each slide"}
MOST_ROWS = 60
KINDS = (".classes", ".tumour")  # of pictures of a slide
MEASURES = {
    "accuracy": "share of patches whose prototype has the class of the patch",
    "ari": "adjusted Rand index, prototypes against classes",
    "ami": "adjusted mutual information, prototypes against classes",
    "ari_named": "adjusted Rand index, prototypes joined by their class",
    "ami_named": "adjusted mutual information, prototypes joined by their class",
}


def prototypes(material: Material) -> Html | None:
    """One card per prototype, then the figures."""
    atlas = material.artefacts.get("atlas")
    if atlas is None or not atlas.rows("prototypes"):
        return None
    found = sorted(atlas.rows("prototypes"), key=lambda row: row["prototype"])
    names = [material.prototype(row["prototype"], row.get("name")) for row in found]
    return join(
        tag("h2", "Prototypes"),
        paragraph(
            "A prototype is a kind of tissue that the method found by itself, without labels. Names, where there are any, were "
            "given by people afterwards. "
            "The typical patches lie nearest to the prototype; those drawn at random show how pure it really is."
        ),
        tag("div", [_card(material, atlas, row, name) for row, name in zip(found, names, strict=True)], class_="cards"),
        _shares(atlas, found, names),
        _groups(atlas, names),
        _matrices(atlas, names),
        listing(atlas.content.get("notes", []), class_="notes"),
    )


def _card(material: Material, atlas: Artefact, row: dict[str, Any], name: str) -> Html:
    c = row["prototype"]
    colour = str(row.get("colour") or colour_of(c))
    swatch = tag("span", class_="swatch", style=f"background:{colour if _is_colour(colour) else '#888888'}")
    strips = []
    for kind, title in SHOWN.items():
        mine = [
            e for e in atlas.rows("exemplars") if e.get("prototype") == c and e.get("kind") == kind and e.get("picture")
        ]
        pictures = [_exemplar(material, atlas, e, name) for e in mine[:MOST]]
        if any(pictures):
            strips.append(join(tag("h4", title), tag("div", pictures, class_="strip")))
    text = f"{row['share']:.1%} of the tissue"
    if row.get("low") is not None and row.get("high") is not None:
        text += f" (95 % interval {row['low']:.1%} to {row['high']:.1%})"
    if "patches" in row and "slides" in row:
        text += f"; {row['patches']:,} patches on {row['slides']:,} slides"
    return tag("article", tag("h3", swatch, name), paragraph(text, class_="facts"), strips, class_="card")


def _is_colour(text: str) -> bool:
    return len(text) == 7 and text[0] == "#" and all(ch in "0123456789abcdefABCDEF" for ch in text[1:])


def _exemplar(material: Material, atlas: Artefact, row: dict[str, Any], name: str) -> Html | None:
    alt = f"Patch of {name}, slide {row.get('slide')}, at {row.get('x')}, {row.get('y')}"
    try:
        return picture(inside(atlas.folder, str(row["picture"])), alt, None, SIDE)
    except InputError as error:
        material.failures[str(row["picture"])] = str(error)
        return None


def inside(folder: Any, name: str) -> Any:
    """File of a folder that a JSON names; one that points outside is refused."""
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise InputError(f"{path}: lies outside {folder}; it is left out of the report.")
    return path


def _shares(atlas: Artefact, found: list[dict[str, Any]], names: list[str]) -> Html:
    alt = "Share of each prototype: " + ", ".join(
        f"{n} {row['share']:.1%}" for n, row in zip(names, found, strict=True)
    )
    text = "Mean share over patients, with the 95 % interval."
    return join(tag("h3", "How much of each"), plot("shares", share_chart(atlas.content, names), alt, text))


def _groups(atlas: Artefact, names: list[str]) -> Html | None:
    figures: dict[str, Html] = {}
    for column, chart in group_charts(atlas.content, names).items():
        text = f"Each prototype by {column}, over patients; p-values on the right are corrected by Holm over the prototypes."
        figures[str(column)] = join(plot(f"groups-{len(figures)}", chart, text), _tests(atlas, column, names))
    return join(tag("h3", "In whom"), choice("groups", "Divide by", figures)) if figures else None


def _tests(atlas: Artefact, column: str, names: list[str]) -> Html | None:
    rows = [row for row in atlas.rows("tests") if row["column"] == column]
    if not rows:
        return None
    cells = [
        [
            names[row["prototype"]],
            row.get("test", ""),
            *(number(_known(row.get("statistic"))),),
            p_value(_known(row.get("p"))),
            p_value(_known(row.get("p_corrected"))),
        ]
        for row in rows
    ]
    return details("Tests", table(["prototype", "test", "statistic", "p", "p, corrected"], cells))


def _known(value: Any) -> float:
    return np.nan if value is None else float(value)


def _matrices(atlas: Artefact, names: list[str]) -> Html | None:
    kinds = {
        "neighbours": (
            "What touches what",
            "log₂ of contacts between patches, observed over expected: orange touch more often than chance, blue less.",
        ),
        "cooccurrence": (
            "What occurs together",
            "Correlation over slides of the log-ratios of shares: orange occur together, blue avoid each other.",
        ),
    }
    charts = relation_charts(atlas.content, names)
    figures = {
        title: plot(key, charts[key], text, widest=820)
        for key, (title, text) in kinds.items()
        if key in charts and _any_known(atlas.content[key])  # without coordinates nothing is known to touch
    }
    text = listing(map(str, atlas.content.get("neighbours_in_words") or ()))  # older atlases have none
    return join(tag("h3", "Beside what"), text, choice("beside", "Show", figures)) if figures else None


def _any_known(values: list[list[float | None]]) -> bool:
    return any(cell is not None for row in values for cell in row)


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
        table(["agreement", "value"], [[MEASURES[k], _cell(numbers[k])] for k in MEASURES if k in numbers])
        if numbers
        else None,
        _confusion(material, found),
        gallery(material, pictures, "Agreement with tissue classes on {}"),
        listing(found.content.get("notes", []), class_="notes"),
        *(details(title, _records(found.rows(key))) for key, title in TABLES.items() if found.rows(key)),
    )


def _confusion(material: Material, artefact: Artefact) -> Html | None:
    counts, classes = artefact.content.get("confusion"), [str(row["class"]) for row in artefact.rows("classes")]
    prototypes = [material.prototype(row["prototype"], row.get("name")) for row in artefact.rows("prototypes")]
    if not counts or np.shape(counts) != (len(prototypes), len(classes)):
        return None
    text = (
        "Share of each class (columns) in the patches of each prototype (rows). A good prototype has one filled cell."
    )
    return plot("tissue-classes", class_chart(artefact.content, prototypes), text, widest=420 + 90 * len(classes))


def _records(rows: list[dict[str, Any]]) -> Html:
    """Records as a table: the columns that hold one value each."""
    columns = [key for key in rows[0] if not any(isinstance(row.get(key), (dict, list)) for row in rows)]
    cells = [[_cell(row.get(key)) for key in columns] for row in rows[:MOST_ROWS]]
    caption = f"The first {MOST_ROWS} of {len(rows)}" if len(rows) > MOST_ROWS else None
    return table([key.replace("_", " ") for key in columns], cells, caption)


def _cell(value: Any) -> str:
    if value is None:
        return DASH
    return number(value) if isinstance(value, float) else str(value)

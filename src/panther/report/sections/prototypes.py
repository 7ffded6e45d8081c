"""Tab: the atlas. What each prototype looks like, how much of it there is, in whom, and beside what."""

from typing import Any

import numpy as np

from panther.errors import InputError
from panther.explain.palette import colour as colour_of
from panther.report.figures import group_shares, matrix, shares
from panther.report.html import Html, choice, details, join, listing, number, p_value, paragraph, table, tag
from panther.report.material import Artefact, Material
from panther.report.plots import plot
from panther.report.thumbnails import picture

SHOWN = {"nearest": "Most typical", "random": "Drawn at random"}
MOST = 5  # exemplars of a kind
SIDE = 160


def prototypes(material: Material) -> Html | None:
    """One card a prototype, then the figures."""
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
        _shares(found, names),
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
    said = f"{row['share']:.1%} of the tissue"
    if row.get("low") is not None and row.get("high") is not None:
        said += f" (95 % interval {row['low']:.1%} to {row['high']:.1%})"
    if "patches" in row and "slides" in row:
        said += f"; {row['patches']:,} patches on {row['slides']:,} slides"
    return tag("article", tag("h3", swatch, name), paragraph(said, class_="facts"), strips, class_="card")


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


def _shares(found: list[dict[str, Any]], names: list[str]) -> Html:
    columns = {key: [np.nan if row.get(key) is None else row[key] for row in found] for key in ("share", "low", "high")}
    alt = "Share of each prototype: " + ", ".join(f"{n} {s:.1%}" for n, s in zip(names, columns["share"], strict=True))
    said = "Mean share over patients, with the 95 % interval."
    chart = shares(names, columns["share"], (columns["low"], columns["high"]), "share of the tissue")
    return join(tag("h3", "How much of each"), plot("shares", chart, alt, said))


def _groups(atlas: Artefact, names: list[str]) -> Html | None:
    rows = atlas.rows("groups")
    figures: dict[str, Html] = {}
    for column in dict.fromkeys(row["column"] for row in rows):
        mine = [row for row in rows if row["column"] == column]
        by_group = {}
        for value in dict.fromkeys(row["value"] for row in mine):
            known = {row["prototype"]: row for row in mine if row["value"] == value}
            n = next(iter(known.values())).get("n")
            label = f"{value} (n = {n})" if n is not None else str(value)
            by_group[label] = [_triple(known.get(c)) for c in range(len(names))]
        said = f"Mean share of each prototype by {column}, with 95 % intervals over patients."
        figures[str(column)] = join(
            plot(f"groups-{len(figures)}", group_shares(names, by_group), said), _tests(atlas, column, names)
        )
    return join(tag("h3", "In whom"), choice("groups", "Divide by", figures)) if figures else None


def _triple(row: dict[str, Any] | None) -> tuple[float, float, float]:
    values = [None if row is None else row.get(key) for key in ("mean", "low", "high")]
    mean, low, high = (np.nan if value is None else float(value) for value in values)
    return mean, low, high


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
    figures = {}
    for key, (title, said) in kinds.items():
        values = atlas.content.get(key)
        if not isinstance(values, list) or len(values) != len(names):
            continue
        if any(cell is not None for row in values for cell in row):  # without coordinates nothing is known to touch
            figures[title] = plot(key, matrix(values, names, "log₂" if key == "neighbours" else "r"), said, widest=820)
    return join(tag("h3", "Beside what"), choice("beside", "Show", figures)) if figures else None

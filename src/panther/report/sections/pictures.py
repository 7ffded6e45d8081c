"""Tab: maps of prototypes on slides."""

from pathlib import Path

from panther.errors import InputError
from panther.report.html import Html, join, paragraph, plural, tag
from panther.report.material import PICTURES, Material
from panther.report.thumbnails import picture

MOST_PICTURES = 12
LARGE, SMALL = 1600, 1200  # pixels, for a few pictures and for many
# the one picture of a slide that says most, best first
PREFERRED = (".side_by_side", ".map", ".attention", ".heatmaps", ".overlay")


def maps(material: Material) -> Html | None:
    """Selected maps, downsized."""
    if material.maps is None:
        return None
    found = one_a_slide(material.maps)
    shown = gallery(
        material, list(found.values())[:MOST_PICTURES], "Map of slide {}: which prototype each patch belongs to"
    )
    if not shown:
        return None
    more = (
        f" {plural(len(found) - MOST_PICTURES, 'more slide')} in the folder of maps."
        if len(found) > MOST_PICTURES
        else ""
    )
    said = (
        "Every patch in the colour of the prototype it belongs to most; a prototype has the same colour on every slide."
    )
    return join(tag("h2", "Maps"), paragraph(said + more), shown)


def one_a_slide(folder: Path) -> dict[str, Path]:
    """The most telling picture of each slide, by slide."""
    found: dict[str, dict[str, Path]] = {}
    for path in sorted(p for p in folder.iterdir() if p.suffix.lower() in PICTURES and not p.name.startswith(".")):
        kind = next((kind for kind in PREFERRED if path.stem.endswith(kind)), None)
        if kind is not None:
            found.setdefault(path.stem.removesuffix(kind), {})[kind] = path
    return {slide: next(kinds[k] for k in PREFERRED if k in kinds) for slide, kinds in found.items()}


def gallery(material: Material, paths: list[Path], alt: str) -> Html | None:
    """Pictures one below the other; one that cannot be read is told and left out."""
    longest = LARGE if len(paths) <= MOST_PICTURES // 2 else SMALL
    shown = []
    for path in paths:
        slide = path.name.split(".")[0]
        try:
            shown.append(picture(path, alt.format(slide), slide, longest))
        except InputError as error:
            material.failures[path.name] = str(error)
    return tag("div", shown, class_="gallery") if shown else None

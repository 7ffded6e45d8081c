"""Tab: maps of prototypes, or of a network's attention, on slides."""

from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path

from panther.errors import InputError
from panther.report.html import Html, join, paragraph, picture, plural, tag
from panther.report.material import PICTURES, Material

MOST_PICTURES = 12
LARGE, SMALL = 1600, 1200  # pixels, for a few pictures and for many
# the one picture of a slide that says most, best first
PREFERRED = (".side_by_side", ".map", ".attention", ".heatmaps", ".overlay")
PROTOTYPES = (
    "Every patch in the colour of the prototype it belongs to most; a prototype has the same colour on every slide."
)
ATTENTION = (
    "Where the attention of a supervised network lies; the scale is within each slide, so slides do not compare."
)


def maps(material: Material) -> Html | None:
    """Selected maps, downsized."""
    if material.maps is None:
        return None
    found = by_slide(material.maps, PREFERRED)
    attended = {slide for slide, kinds in found.items() if ".attention" in kinds and ".map" not in kinds}
    shown = {slide: most_telling(kinds) for slide, kinds in found.items()}
    parts = [
        _tab_part(
            material, PROTOTYPES, {s: p for s, p in shown.items() if s not in attended}, "Map of prototypes on {}"
        ),
        _tab_part(material, ATTENTION, {s: p for s, p in shown.items() if s in attended}, "Map of attention on {}"),
    ]
    return join(tag("h2", "Maps"), parts) if any(parts) else None


def _tab_part(material: Material, said: str, pictures: Mapping[str, Path], alt: str) -> Html | None:
    shown = gallery(material, pictures, alt)
    return join(paragraph(said), shown) if shown else None


def by_slide(folder: Path, kinds: Sequence[str]) -> dict[str, dict[str, Path]]:
    """Pictures `SLIDE.KIND.png` by slide and kind; a slide's own name may have dots."""
    found: dict[str, dict[str, Path]] = {}
    for path in sorted(p for p in folder.iterdir() if p.suffix.lower() in PICTURES and not p.name.startswith(".")):
        kind = next((kind for kind in kinds if path.stem.endswith(kind)), None)
        if kind is not None:
            found.setdefault(path.stem.removesuffix(kind), {})[kind] = path
    return found


def most_telling(kinds: Mapping[str, Path]) -> Path:
    """One picture of a slide. Prototypes and attention are both written side by side: with both, it may be of either."""
    mixed = ".map" in kinds and ".attention" in kinds
    return next(kinds[k] for k in PREFERRED if k in kinds and not (mixed and k == ".side_by_side"))


def gallery(material: Material, pictures: Mapping[str, Path], alt: str) -> Html | None:
    """Pictures by caption, one below the other; one that cannot be read is left out and listed."""
    longest = LARGE if len(pictures) <= MOST_PICTURES // 2 else SMALL
    shown = []
    for caption, path in islice(pictures.items(), MOST_PICTURES):
        try:
            shown.append(picture(path, alt.format(caption), caption, longest))
        except InputError as error:
            material.failures[path.name] = str(error)
    more = len(pictures) - MOST_PICTURES
    left = paragraph(f"{plural(more, 'more picture')} in the folder.", class_="facts") if more > 0 else None
    return join(tag("div", shown, class_="gallery"), left) if shown else None

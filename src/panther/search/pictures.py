"""Pictures of two similar slides side by side, with shared prototypes in colour and all others in grey."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from panther.charts.style import MISSING, plain_text, save, short
from panther.errors import InputError
from panther.explain.maps import map_slide
from panther.explain.names import Names
from panther.explain.palette import rgb_values
from panther.explain.scene import Images, MapSettings, slide_jobs
from panther.explain.slide_map import (
    BESIDE,
    PANEL,
    ROW,
    Panel,
    Sheet,
    SlideMap,
    map_pixels,
    original,
    scale_bar,
    unit_of,
)
from panther.search.similar import Hit, SimilarSlides
from panther.storage.bags import BagsLike, as_bags
from panther.storage.prototypes import as_prototypes
from panther.types import Prototypes

OTHER = "all other prototypes"


def picture_hits(
    result: SimilarSlides,
    query: Any,
    features: BagsLike,
    prototypes: Prototypes | Path | str,
    slides: Images,
    names: Names,
    max_side: int,
    folder: Path,
) -> tuple[SimilarSlides, dict[str, str]]:
    """Draw the query beside every hit (`QUERY.like.01.HIT.png`, ...); a hit without features or coordinates fails alone.

    ``features`` are those of the cohort; a new slide as ``query`` is not among them.
    """
    fitted = as_prototypes(prototypes)
    method, options = result.method
    settings = MapSettings(method, options, max_side).named(names, len(fitted))
    refs = {ref.sample: ref for ref in as_bags(features).refs}
    if not isinstance(query, (str, Path)) or Path(query).is_file():
        refs |= {ref.sample: ref for ref in as_bags({result.query: query}).refs}
    jobs = {job.sample: job for job in slide_jobs([*refs.values()], slides)}

    def mapped(slide: str) -> SlideMap:
        if slide not in jobs:
            raise InputError(f"{slide}: no features of this slide in `features`")
        return map_slide(jobs[slide].ref.open(), fitted, settings, jobs[slide].image).within(PANEL)

    first = mapped(result.query)
    files: list[Path] = []
    notes, failures = [*result.notes], {}
    for hit in result.hits:
        try:
            figure = draw_alike(first, mapped(hit.slide), hit)
        except InputError as error:
            failures[hit.slide] = str(error)
            continue
        files.append(folder / f"{result.query}.like.{hit.rank:02}.{hit.slide}.png")
        save(figure, files[-1])
        notes += jobs[hit.slide].notes
    return replace(result, pictures=tuple(files), notes=tuple(notes)), failures


@plain_text
def draw_alike(query: SlideMap, other: SlideMap, hit: Hit) -> Any:
    """Figure of both slides (if there are images) above both maps, with only shared prototypes in colour."""
    if hit.reasons is None:
        raise InputError(
            f"{hit.slide}: its embedding has no proportions, so the tissue shared with {query.slide} is unknown"
        )
    shared = hit.reasons.shared
    maps = [replace(one, colours=_colours(one, shared)) for one in (query, other)]
    has_images = not query.view.blank and not other.view.blank
    pictures: list[Panel] = [*original(query), *original(other)] if has_images else []
    titles = query.slide, f"{other.slide}, distance {hit.distance:.3f}"
    panels = [*pictures, *((title, map_pixels(one)) for title, one in zip(titles, maps, strict=True))]
    canvas = np.max([picture.shape[:2] for _, picture in panels], axis=0)
    unit = BESIDE * max(unit_of(one) for one in maps)
    shares = {one.prototype: (one.query, one.hit) for one in hit.reasons.prototypes}
    letters = max(len(short(text)) for text in [*(query.title(c) for c in shared), OTHER])
    placed = [(title, _on_canvas(picture, canvas)) for title, picture in panels]
    sheet = Sheet(placed, (118 + 6.6 * letters) * unit, unit, 1 + has_images, (len(shared) + 3) * ROW * unit)
    lines = [(query.prototype_colours[c], shares[c], short(query.title(c))) for c in shared]
    rest = tuple(1 - sum(shares[c][side] for c in shared) for side in (0, 1))
    sheet.write(sheet.right + 14 * unit, sheet.head + ROW * unit / 2, "π of both", size=8)
    for number, (colour, (first, second), title) in enumerate([*lines, (MISSING, rest, OTHER)], 1):
        top = sheet.head + (number + 0.7) * ROW * unit
        sheet.legend_line(sheet.right, top, colour, (f"{first:.2f}  {second:.2f}", title), (14, 92))
    for ax, one in zip(sheet.axes[len(pictures) :], maps, strict=True):
        if one.view.mpp is not None:
            scale_bar(ax, one.view, unit)
    for ax in sheet.axes:
        ax.set_xlim(0, sheet.width)
        ax.set_ylim(sheet.height, 0)
    return sheet.figure


def _colours(slide: SlideMap, shared: Sequence[int]) -> np.ndarray:
    """Colours (N, 3) of the patches: of their prototype if it is shared, else grey."""
    colours = rgb_values([MISSING] * slide.prototypes)
    colours[list(shared)] = rgb_values(slide.prototype_colours)[list(shared)]
    return colours[slide.labels]


def _on_canvas(picture: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Picture (h, w, 3) at the upper left of a white canvas, unscaled."""
    canvas = np.full((*size.tolist(), 3), 255, np.uint8)
    canvas[: picture.shape[0], : picture.shape[1]] = picture
    return canvas

"""Two slides that are alike, side by side: the prototypes that both have in their colours, all else grey."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from panther.charts.style import MISSING, plain_text, save, short
from panther.errors import InputError
from panther.explain.maps import map_slide
from panther.explain.names import Names
from panther.explain.palette import rgb_values
from panther.explain.scene import Images, MapSettings, SlideJob, slide_jobs
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
from panther.store import check_output_folder
from panther.types import Openable, Prototypes

WRITTEN = ("*.like.*.png",)  # patterns
OTHER = "all other prototypes"


@dataclass
class Pictures:
    """What was drawn, and what could not be."""

    files: list[Path] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def picture_hits(
    found: SimilarSlides,
    features: BagsLike,
    prototypes: Prototypes | Path | str,
    folder: Path,
    *,
    slides: Images = None,
    names: Names = None,
    settings: MapSettings | None = None,
    query: Openable | None = None,
) -> Pictures:
    """Draw the slide asked about beside every hit, into `QUERY.like.01.HIT.png` and so on.

    ``features`` are those of the cohort, with coordinates; ``query`` those of a new slide, which is not among them. A hit without features, or
    whose features have no place on a slide, is told and the others are drawn.
    """
    check_output_folder(folder, WRITTEN)
    fitted = as_prototypes(prototypes)
    method, options = found.method
    settings = replace(settings or MapSettings(), method=method, options=dict(options)).named(names, len(fitted))
    refs = {ref.sample: ref for ref in as_bags(features).refs} | ({} if query is None else {found.query: query})
    jobs = {job.sample: job for job in slide_jobs([*refs.values()], slides)}
    mine = _mapped(jobs, found.query, fitted, settings)
    drawn = Pictures()
    for hit in found.hits:
        try:
            other = _mapped(jobs, hit.slide, fitted, settings)
            figure = draw_alike(mine, other, hit)
        except InputError as error:
            drawn.failures[hit.slide] = str(error)
            continue
        drawn.files.append(folder / f"{found.query}.like.{hit.rank:02}.{hit.slide}.png")
        save(figure, drawn.files[-1])
        drawn.notes += jobs[hit.slide].notes
    return drawn


def _mapped(jobs: dict[str, SlideJob], slide: str, prototypes: Prototypes, settings: MapSettings) -> SlideMap:
    if slide not in jobs:
        raise InputError(
            f"{slide}: there are no features of this slide, so it cannot be drawn; give them in `features=`."
        )
    job = jobs[slide]
    return map_slide(job.ref.open(), prototypes, settings, job.image).within(PANEL)


@plain_text
def draw_alike(query: SlideMap, other: SlideMap, hit: Hit) -> Any:
    """Both slides (above, where there are images) and both maps, in which only what they share is coloured; returns a matplotlib figure."""
    if hit.reasons is None:
        raise InputError(f"{hit.slide}: there are no prototypes to say what it shares with {query.slide}.")
    shared = hit.reasons.shared
    maps = [replace(one, colours=_colours(one, shared)) for one in (query, other)]
    pictures: list[Panel] = (
        [*original(query), *original(other)] if not query.view.blank and not other.view.blank else []
    )
    rows = 2 if pictures else 1
    above = len(pictures)
    titles = query.slide, f"{other.slide}, distance {hit.distance:.3f}"
    panels = [*pictures, *((title, map_pixels(one)) for title, one in zip(titles, maps, strict=True))]
    canvas = np.max([picture.shape[:2] for _, picture in panels], axis=0)
    unit = BESIDE * max(unit_of(one) for one in maps)
    shares = {one.prototype: (one.query, one.hit) for one in hit.reasons.prototypes}
    letters = max(len(short(text)) for text in [*(query.title(c) for c in shared), OTHER])
    placed = [(title, _on_canvas(picture, canvas)) for title, picture in panels]
    sheet = Sheet(placed, (118 + 6.6 * letters) * unit, unit, rows, (len(shared) + 3) * ROW * unit)
    lines = [(query.prototype_colours[c], shares[c], short(query.title(c))) for c in shared]
    rest = tuple(1 - sum(shares[c][side] for c in shared) for side in (0, 1))
    sheet.write(sheet.right + 14 * unit, sheet.head + ROW * unit / 2, "π of both", size=8)
    for number, (colour, (first, second), title) in enumerate([*lines, (MISSING, rest, OTHER)], 1):
        top = sheet.head + (number + 0.7) * ROW * unit
        sheet.legend_line(sheet.right, top, colour, (f"{first:.2f}  {second:.2f}", title), (14, 92))
    for ax, one in zip(sheet.axes[above:] if above else sheet.axes, maps, strict=True):
        if one.view.mpp is not None:
            scale_bar(ax, one.view, unit)
    for ax in sheet.axes:
        ax.set_xlim(0, sheet.width)
        ax.set_ylim(sheet.height, 0)
    return sheet.figure


def _colours(found: SlideMap, shared: Sequence[int]) -> np.ndarray:
    """Colours (N, 3) of the patches: those of prototypes that are shared, grey for all others."""
    every = rgb_values([MISSING] * found.prototypes)
    every[list(shared)] = rgb_values(found.prototype_colours)[list(shared)]
    return every[found.labels]


def _on_canvas(picture: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Picture (h, w, 3) at the upper left of a white one of that size: pixels stay pixels, so both slides have their own scale bar."""
    canvas = np.full((*size.tolist(), 3), 255, np.uint8)
    canvas[: picture.shape[0], : picture.shape[1]] = picture
    return canvas

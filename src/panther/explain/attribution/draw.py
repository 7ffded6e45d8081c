"""Files of an attribution: tables, charts of the cohort, and a map of each slide."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from panther.charts.chart import Chart
from panther.charts.prototypes import contribution_swarm, contributions
from panther.charts.style import GREY, plain_text, save, short
from panther.charts.to_matplotlib import draw as draw_charts
from panther.engine import Work, stream
from panther.explain import palette
from panther.explain import slide_map as draw
from panther.explain.attribution import Attribution
from panther.explain.attribution.mathematics import by_block, largest_pairs
from panther.explain.maps import map_slide
from panther.explain.names import label
from panther.explain.scene import MapSettings, SlideJob
from panther.explain.slide_map import SlideMap
from panther.storage.bags import BagRef
from panther.storage.files import write_json
from panther.storage.names import as_text
from panther.storage.tables import write_spreadsheet
from panther.types import Openable, Prototypes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_OUTPUTS, MOST_PROTOTYPES, MOST_PAIRS = 6, 20, 10  # in one picture
LISTED = 12  # prototypes beside a slide


def contribution_chart(
    rows: Sequence[Mapping[str, Any]],
    prototypes: Sequence[int],
    names: Mapping[int, str],
    title: str = "",
    colours: Mapping[int, str] | None = None,
) -> Chart:
    """Mean absolute contribution of the prototypes, by statistic; ``rows`` are those of one output in `attribution.json`.

    ``colours`` go before the palette's.
    """
    size = by_block(rows)
    statistics = dict.fromkeys(statistic for statistic, _ in size)
    by_statistic = {str(s): [size.get((s, c), 0.0) for c in prototypes] for s in statistics}
    shown = [names.get(c, f"C{c}") for c in prototypes]
    return contributions(shown, by_statistic, [(colours or {}).get(c) or palette.colour(c) for c in prototypes], title)


def by_size(rows: Sequence[Mapping[str, Any]]) -> list[int]:
    """Prototypes of rows of `attribution.json`, the largest contribution first."""
    size: dict[int, float] = {}
    for (_, c), value in by_block(rows).items():
        size[c] = size.get(c, 0.0) + value
    return sorted(size, key=lambda c: (-size[c], c))


def draw_cohort(attribution: Attribution) -> "Figure":
    """Mean size of each prototype's contribution by statistic, beside its contribution in each slide or patient; a matplotlib figure."""
    totals, rows = attribution.by_prototype(), attribution.mean_contributions()  # (n, K, C)
    outputs = sorted(np.argsort(-np.abs(totals).mean((0, 2)), kind="stable")[:MOST_OUTPUTS].tolist())
    shown = np.argsort(-np.abs(totals).mean((0, 1)), kind="stable")[:MOST_PROTOTYPES].tolist()
    titles = {c: label(c, attribution.names) for c in shown}
    numbers, colours = [f"C{c}" for c in shown], dict(enumerate(attribution.colours))
    in_each = f"in each of {len(totals)} samples"
    grid = []
    for k in outputs:
        name = attribution.outputs[k]
        of_output = [row for row in rows if row["output"] == name]
        means = contribution_chart(of_output, shown, titles, f"{name}: mean |contribution| by statistic", colours)
        title = f"{name}: contribution, statistics summed, {in_each}"
        grid.append([means, contribution_swarm(numbers, totals[:, k, shown], [colours[c] for c in shown], title)])
        if pairs := largest_pairs(of_output, MOST_PAIRS):
            columns = [attribution.players.index((row["prototype"], row["statistic"])) for row in pairs]
            sizes = {"touching": [float(row["mean_absolute"]) for row in pairs]}
            long, grey = list(map(attribution.pair_title, pairs)), [GREY] * len(pairs)
            short_names = [f"C{row['prototype']} {row['statistic']}" for row in pairs]
            values, title = attribution.contributions[:, k, columns], f"{name}: pairs that touch"
            means = contributions(long, sizes, grey, f"{title}, mean |contribution|")
            grid.append([means, contribution_swarm(short_names, values, grey, f"{title}, {in_each}")])
    return draw_charts(grid, widths=(2, 3))


class Shown(NamedTuple):
    """One output's contributions on one slide."""

    output: str
    contributions: np.ndarray  # (C,), a prototype's statistics together


def outputs_to_show(attribution: Attribution, row: int) -> list[Shown]:
    """Predicted output of a sample; of three and more also the runner-up. Of two, one mirrors the other."""
    totals = attribution.by_prototype()[row]  # (K, C)
    count = 1 if len(attribution.outputs) <= 2 else 2
    largest = np.argsort(-attribution.values[row], kind="stable")[:count]
    return [Shown(attribution.outputs[k], totals[k]) for k in largest]


def patch_values(assignment: np.ndarray, contributions: np.ndarray) -> np.ndarray:
    r"""Contribution of each patch's prototype, weighted by the posterior: :math:`v_n = \sum_c q_{nc} \phi_c`, (N,)."""
    return assignment @ contributions


@plain_text
def draw_attribution(slide_map: SlideMap, outputs: Sequence[Shown]) -> Any:
    """Original (where there is an image) beside the contributions of the patches' prototypes; returns a matplotlib figure."""
    slide_map = slide_map.within(draw.PANEL)
    limit = max(float(np.abs(shown.contributions).max()) for shown in outputs)
    panels = draw.original(slide_map)
    for shown in outputs:
        pixels = draw.value_pixels(slide_map, patch_values(slide_map.assignment, shown.contributions), limit)
        panels.append((f"adds to {shown.output} (red) or takes from it (blue)", pixels))
    values = outputs[0].contributions
    largest = np.argsort(-np.abs(values), kind="stable")[:LISTED]
    colours = draw.heat_colours((values / (limit or 1) + 1) / 2, draw.DIVERGING) / 255
    lines = [(tuple(colours[c]), f"{values[c]:+.3f}", short(slide_map.title(c))) for c in largest.tolist()]
    legend = draw.Legend(short(outputs[0].output, 24), lines, (16, 66))
    bar = draw.ColourBar("contribution of the patch's prototype", draw.DIVERGING, (-limit, limit), 94)
    return draw.sheet_figure(slide_map, panels, legend, bar)


def write_attribution(attribution: Attribution, folder: Path) -> list[Path]:
    """Write `attribution.json`, `attribution.csv` and `cohort.png`."""
    files = [folder / "attribution.json", folder / "attribution.csv", folder / "cohort.png"]
    write_json(files[0], attribution.content())
    rows = (
        (sample, output, prototype, statistic, share)
        for sample, contributions in zip(attribution.samples, attribution.contributions, strict=True)
        for output, shares in zip(attribution.outputs, contributions, strict=True)
        for (prototype, statistic), share in zip(attribution.players, shares.tolist(), strict=True)
    )
    write_spreadsheet(files[1], ("sample", "output", "prototype", "statistic", "contribution"), rows)
    save(draw_cohort(attribution), files[2], dpi=150)
    return files


def write_slides(
    attribution: Attribution,
    jobs: Sequence[tuple[str, SlideJob]],
    prototypes: Prototypes,
    settings: MapSettings,
    folder: Path,
    work: Work,
) -> tuple[list[Path], list[str], dict[str, str]]:
    """Write `SLIDE.attribution.png` of every slide with coordinates; returns files, notes and failures.

    ``jobs`` are the slides, each with the name of its slide or patient in the attribution: slides of a patient share its contributions.
    """
    row = {name: number for number, name in enumerate(attribution.samples)}
    slides = [(job, outputs_to_show(attribution, row[name])) for name, job in jobs if name in row]
    settings = replace(settings, device=work.device)
    function = partial(_write_slide, prototypes=prototypes, settings=settings, folder=folder)
    failures: dict[str, str] = {}
    written = {slides[index][0].sample: file for index, file in stream(function, slides, "drawing", work, failures)}
    no_image = [job.sample for job, _ in slides if job.notes]  # the only file that may be missing here
    no_picture = [sample for sample, file in written.items() if file is None]
    notes = []
    if no_image:
        notes.append(f"{len(no_image)} slides have no image of their name, e.g. {no_image[0]}; coordinates are drawn.")
    if no_picture:
        notes.append(f"{len(no_picture)} slides have no coordinates and no picture, e.g. {no_picture[0]}.")
    return [file for file in written.values() if file is not None], notes, failures


def _write_slide(
    slide: tuple[SlideJob, Sequence[Shown]], *, prototypes: Prototypes, settings: MapSettings, folder: Path
) -> Path | None:
    job, outputs = slide
    bag = job.ref.open()
    if bag.places is None:
        return None
    path = folder / f"{bag.slide_id}.attribution.png"
    save(draw_attribution(map_slide(bag, prototypes, settings, job.image), outputs), path)
    return path


def slides_of(ref: Openable, level: str) -> list[Openable]:
    """Slides of a bag: of a patient's, one for each of its files."""
    if level == "slide" or not isinstance(ref, BagRef):
        return [ref]
    return [BagRef(as_text(file.stem) or ref.sample, (file,), ref.reading) for file in ref.files]

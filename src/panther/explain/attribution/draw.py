"""Charts of a cohort's attribution, and the map of one slide's."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from panther.charts.chart import Chart
from panther.charts.prototypes import contribution_swarm, contributions
from panther.charts.style import GREY, plain_text, short
from panther.charts.to_matplotlib import draw as draw_charts
from panther.explain import palette
from panther.explain import slide_map as draw
from panther.explain.attribution.mathematics import by_block, largest_pairs, partner
from panther.explain.attribution.model import Attribution
from panther.explain.names import colours, label
from panther.explain.slide_map import DIVERGING, SlideMap, heat_colours, value_pixels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_OUTPUTS, MOST_PROTOTYPES, MOST_PAIRS = 6, 20, 10  # in one picture
LISTED = 12  # prototypes beside a slide


def contribution_chart(
    rows: Sequence[Mapping[str, Any]],
    prototypes: Sequence[int],
    names: Mapping[int, str],
    title: str = "",
    given: Mapping[int, str] | None = None,
) -> Chart:
    """Mean absolute contribution of the prototypes, by statistic; ``rows`` are those of one output in `attribution.json`.

    ``given`` are colours that go before the palette's.
    """
    size = by_block(rows)
    statistics = dict.fromkeys(statistic for statistic, _ in size)
    by_statistic = {str(s): [size.get((s, c), 0.0) for c in prototypes] for s in statistics}
    shown = [names.get(c, f"C{c}") for c in prototypes]
    return contributions(shown, by_statistic, [(given or {}).get(c) or palette.colour(c) for c in prototypes], title)


def by_size(rows: Sequence[Mapping[str, Any]]) -> list[int]:
    """Prototypes of rows of `attribution.json`, the largest contribution first."""
    size: dict[int, float] = {}
    for (_, c), value in by_block(rows).items():
        size[c] = size.get(c, 0.0) + value
    return sorted(size, key=lambda c: (-size[c], c))


def pair_title(row: Mapping[str, Any], names: Mapping[int, str]) -> str:
    """`C3 lymphocytes beside C7 tumour`, of a row of two prototypes that touch."""
    other = partner(row["statistic"])
    assert other is not None
    return f"{label(row['prototype'], names)} beside {'itself' if other == row['prototype'] else label(other, names)}"


def mean_contributions(attribution: Attribution) -> list[dict[str, Any]]:
    """Mean contribution and mean absolute one over the cohort: one row per output, prototype and statistic."""
    mean, size = attribution.contributions.mean(0), np.abs(attribution.contributions).mean(0)  # (K, P) each
    return [
        {"output": output, "prototype": prototype, "statistic": statistic, "mean": float(mean[k, p]), "mean_absolute": float(size[k, p])}
        for k, output in enumerate(attribution.outputs)
        for p, (prototype, statistic) in enumerate(attribution.players)
    ]  # fmt: skip


def draw_cohort(attribution: Attribution) -> "Figure":
    """Mean size of each prototype's contribution by statistic, beside its contribution in each slide or patient; a matplotlib figure."""
    totals, rows = attribution.by_prototype(), mean_contributions(attribution)  # (n, K, C)
    outputs = sorted(np.argsort(-np.abs(totals).mean((0, 2)), kind="stable")[:MOST_OUTPUTS].tolist())
    shown = np.argsort(-np.abs(totals).mean((0, 1)), kind="stable")[:MOST_PROTOTYPES].tolist()
    titles = {c: label(c, dict(attribution.names)) for c in shown}
    numbers, given = [f"C{c}" for c in shown], dict(enumerate(colours(attribution.namings, attribution.n_prototypes)))
    grid = []
    for k in outputs:
        name = attribution.outputs[k]
        own = [row for row in rows if row["output"] == name]
        bars = contribution_chart(own, shown, titles, f"{name}: mean size of the contribution", given)
        each = f"{name}: contribution in each of {len(totals)} samples"
        grid.append([bars, contribution_swarm(numbers, totals[:, k, shown], [given[c] for c in shown], each)])
        if pairs := largest_pairs(own, MOST_PAIRS):
            grid.append(_pair_charts(attribution, pairs, k))
    return draw_charts(grid, widths=(2, 3))


def _pair_charts(attribution: Attribution, pairs: Sequence[Mapping[str, Any]], output: int) -> list[Chart]:
    """The same of pairs of prototypes that touch."""
    rows = [attribution.players.index((row["prototype"], row["statistic"])) for row in pairs]
    numbers = [f"C{row['prototype']} {row['statistic']}" for row in pairs]
    titles, grey = [pair_title(row, attribution.names) for row in pairs], [GREY] * len(pairs)
    sizes = {"touching": [float(row["mean_absolute"]) for row in pairs]}
    name = attribution.outputs[output]
    return [
        contributions(titles, sizes, grey, f"{name}: pairs that touch, mean size"),
        contribution_swarm(
            numbers,
            attribution.contributions[:, output, rows],
            grey,
            f"{name}: pairs that touch, in each of {len(attribution.samples)} samples",
        ),
    ]


class Shown(NamedTuple):
    """One output's contributions on one slide."""

    output: str
    contributions: np.ndarray  # (C,), a prototype's statistics together


def outputs_to_show(attribution: Attribution, row: int) -> list[Shown]:
    """Predicted output of a sample first; with three and more also the runner-up. Of two, one is the other's mirror."""
    totals = attribution.by_prototype()[row]  # (K, C)
    count = 1 if len(attribution.outputs) <= 2 else 2
    return [
        Shown(attribution.outputs[k], totals[k])
        for k in np.argsort(-attribution.values[row], kind="stable")[:count].tolist()
    ]


def patch_values(assignment: np.ndarray, contributions: np.ndarray) -> np.ndarray:
    r"""Contribution of each patch's prototype, weighted by the posterior: :math:`v_n = \sum_c q_{nc} \phi_c`, (N,)."""
    return assignment @ contributions


@plain_text
def draw_attribution(slide_map: SlideMap, outputs: Sequence[Shown]) -> Any:
    """Original (where there is an image) beside what each patch's prototype adds to the outputs; returns a matplotlib figure."""
    slide_map = slide_map.within(draw.PANEL)
    unit = draw.unit_of(slide_map)
    limit = max(float(np.abs(shown.contributions).max()) for shown in outputs)
    panels = draw.original(slide_map)
    for shown in outputs:
        pixels = value_pixels(slide_map, patch_values(slide_map.assignment, shown.contributions), limit)
        panels.append((f"what adds to {shown.output} (red) or takes from it (blue)", pixels))
    listed = np.argsort(-np.abs(outputs[0].contributions), kind="stable")[:LISTED].tolist()
    letters = max(len(short(slide_map.title(c))) for c in listed)
    text = (86 + 6.6 * letters) * unit
    sheet = draw.Sheet(panels, text + 110 * unit, unit, least=(len(listed) + 3) * draw.ROW * unit)
    _list(sheet, slide_map, outputs[0], listed, limit)
    draw.colour_bar(sheet, draw.ColourBar("contribution of the patch's prototype", DIVERGING, (-limit, limit), 94))
    draw.add_scale_bar_and_outline(sheet, slide_map)
    return sheet.figure


def _list(sheet: draw.Sheet, slide_map: SlideMap, shown: Shown, listed: Sequence[int], limit: float) -> None:
    """Prototypes of the largest contributions, with their numbers."""
    unit = sheet.unit
    sheet.write(sheet.right, sheet.head + 0.5 * draw.ROW * unit, short(shown.output, 24), size=8, weight="bold")
    for line, c in enumerate(listed):
        value = float(shown.contributions[c])
        colour = heat_colours(np.array([(value / limit + 1) / 2 if limit > 0 else 0.5]), DIVERGING)[0] / 255
        texts = f"{value:+.3f}", short(slide_map.title(c))
        sheet.legend_line(sheet.right, sheet.head + (line + 1.7) * draw.ROW * unit, tuple(colour), texts, (16, 66))

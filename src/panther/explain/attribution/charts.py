"""Charts of a cohort's attribution: how much each prototype moves the outputs."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from panther.charts.chart import Chart
from panther.charts.prototypes import contribution_swarm, contributions
from panther.charts.style import GREY
from panther.charts.to_matplotlib import draw
from panther.explain import palette
from panther.explain.attribution.model import Attribution
from panther.explain.attribution.pairs import by_block, largest_pairs, partner
from panther.explain.names import colours, label

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_OUTPUTS, MOST_PROTOTYPES, MOST_PAIRS = 6, 20, 10  # in one picture


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


def mean_contributions(found: Attribution) -> list[dict[str, Any]]:
    """Mean contribution and mean absolute one over the cohort: one row per output, prototype and statistic."""
    mean, size = found.contributions.mean(0), np.abs(found.contributions).mean(0)  # (K, P) each
    return [
        {"output": output, "prototype": prototype, "statistic": statistic, "mean": float(mean[k, p]), "mean_absolute": float(size[k, p])}
        for k, output in enumerate(found.outputs)
        for p, (prototype, statistic) in enumerate(found.players)
    ]  # fmt: skip


def draw_cohort(found: Attribution) -> "Figure":
    """Mean size of each prototype's contribution by statistic, beside its contribution in each slide or patient; a matplotlib figure."""
    totals, rows = found.by_prototype(), mean_contributions(found)  # (n, K, C)
    outputs = sorted(np.argsort(-np.abs(totals).mean((0, 2)), kind="stable")[:MOST_OUTPUTS].tolist())
    shown = np.argsort(-np.abs(totals).mean((0, 1)), kind="stable")[:MOST_PROTOTYPES].tolist()
    titles = {c: label(c, dict(found.names)) for c in shown}
    numbers, given = [f"C{c}" for c in shown], dict(enumerate(colours(found.namings, found.n_prototypes)))
    grid = []
    for k in outputs:
        name = found.outputs[k]
        own = [row for row in rows if row["output"] == name]
        bars = contribution_chart(own, shown, titles, f"{name}: mean size of the contribution", given)
        each = f"{name}: contribution in each of {len(totals)} samples"
        grid.append([bars, contribution_swarm(numbers, totals[:, k, shown], [given[c] for c in shown], each)])
        if pairs := largest_pairs(own, MOST_PAIRS):
            grid.append(_pair_charts(found, pairs, k))
    return draw(grid, widths=(2, 3))


def _pair_charts(found: Attribution, pairs: Sequence[Mapping[str, Any]], output: int) -> list[Chart]:
    """The same of pairs of prototypes that touch."""
    rows = [found.players.index((row["prototype"], row["statistic"])) for row in pairs]
    numbers = [f"C{row['prototype']} {row['statistic']}" for row in pairs]
    titles, grey = [pair_title(row, found.names) for row in pairs], [GREY] * len(pairs)
    sizes = {"touching": [float(row["mean_absolute"]) for row in pairs]}
    name = found.outputs[output]
    return [
        contributions(titles, sizes, grey, f"{name}: pairs that touch, mean size"),
        contribution_swarm(
            numbers,
            found.contributions[:, output, rows],
            grey,
            f"{name}: pairs that touch, in each of {len(found.samples)} samples",
        ),
    ]

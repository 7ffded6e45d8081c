"""Charts of a cohort's attribution: how much each prototype moves the outputs."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from panther.charts.chart import Chart
from panther.charts.prototypes import contribution_swarm, contributions
from panther.charts.to_matplotlib import draw
from panther.explain import palette
from panther.explain.attribution.model import Attribution
from panther.explain.names import colours, label

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_OUTPUTS, MOST_PROTOTYPES = 6, 20  # in one picture


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
    size = {(row["statistic"], row["prototype"]): float(row["mean_absolute"]) for row in rows}
    statistics = dict.fromkeys(row["statistic"] for row in rows)
    by_statistic = {str(s): [size.get((s, c), 0.0) for c in prototypes] for s in statistics}
    shown = [names.get(c, f"C{c}") for c in prototypes]
    return contributions(shown, by_statistic, [(given or {}).get(c) or palette.colour(c) for c in prototypes], title)


def by_size(rows: Sequence[Mapping[str, Any]]) -> list[int]:
    """Prototypes of rows of `attribution.json`, the largest contribution first."""
    size: dict[int, float] = {}
    for row in rows:
        size[row["prototype"]] = size.get(row["prototype"], 0.0) + float(row["mean_absolute"])
    return sorted(size, key=lambda c: (-size[c], c))


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
    return draw(grid, widths=(2, 3))

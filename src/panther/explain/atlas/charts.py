"""Charts of the atlas: shares by group, what rises with a number, and which prototypes go together; matplotlib figures."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from panther.explain.atlas.atlas import Atlas
from panther.explain.atlas.shares import GroupShare, ShareTest
from panther.explain.atlas.sheets import GREY, short
from panther.explain.draw import DPI, INK, plain_text
from panther.explain.palette import OKABE_ITO

MOST_GROUPS = 6  # drawn; more cannot be told apart, the table has them all
MARKERS = "osD^vP"
STRONG = 3.0  # log2 at which the colours of neighbours end: eight times as often
NUMBERS_UP_TO = 12  # prototypes, for numbers inside the squares to be read


@plain_text
def draw_groups(atlas: Atlas, column: str) -> Any:
    """Mean share of every prototype in every group with 95 % intervals, or Spearman's rho; returns a matplotlib figure."""
    groups = [one for one in atlas.groups if one.column == column]
    tests = {one.prototype: one for one in atlas.tests if one.column == column}
    figure, ax = _figure(8.6, 1.5 + 0.42 * atlas.prototypes)
    if groups:
        _dots(ax, groups)
        ax.set_xlabel("share, mean over patients with 95 % interval")
        ax.set_xlim(left=0)
    else:
        rho = [tests[c].statistic if c in tests else np.nan for c in range(atlas.prototypes)]
        ax.axvline(0, color=GREY, linewidth=0.8)
        ax.scatter(rho, range(atlas.prototypes), color=OKABE_ITO[0], zorder=3)
        ax.set_xlabel(f"Spearman's rho of share and {column}, over patients")
        ax.set_xlim(-1.05, 1.05)
    ax.set_yticks(range(atlas.prototypes), [short(atlas.title(c), 30) for c in range(atlas.prototypes)])
    ax.set_ylim(atlas.prototypes - 0.4, -0.6)
    ax.grid(axis="y", color="#EEEEEE", linewidth=0.8)
    ax.set_axisbelow(True)
    _p_values(ax, tests)
    ax.set_title(_heading(column, groups), loc="left", fontsize=11, weight="bold", pad=22 if groups else 12)
    return figure


@plain_text
def draw_relations(atlas: Atlas) -> Any:
    """Two squares: co-occurrence over slides, and contacts against chance; returns a matplotlib figure."""
    titles = [short(atlas.title(c), 24) for c in range(atlas.prototypes)]
    side = max(2.6, 0.42 * atlas.prototypes)
    labels = 0.08 * max(map(len, titles))  # inches
    figure, axes = _figure(2 * (side + labels + 1.1), side + 0.8, 2)
    _square(axes[0], atlas.cooccurrence, titles, 1.0, "correlation of log-ratios", extend="neither")
    axes[0].set_title("Occur together, over slides", loc="left", fontsize=11, weight="bold")
    _square(axes[1], atlas.contacts.log_ratio(), titles, STRONG, "log2 of contacts to chance", extend="both")
    axes[1].set_title("Touch each other, within slides", loc="left", fontsize=11, weight="bold")
    return figure


def _figure(width: float, height: float, panels: int = 1) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=DPI, layout="constrained", facecolor="white")
    axes = figure.subplots(1, panels)
    for ax in np.atleast_1d(axes):
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _dots(ax: Any, groups: Sequence[GroupShare]) -> None:
    sizes: dict[str, int] = {one.value: one.n for one in groups}
    shown = sorted(sizes, key=lambda value: -sizes[value])[:MOST_GROUPS]
    shown = [value for value in sizes if value in shown]  # in the table's order
    step = 0.66 / len(shown)
    for number, value in enumerate(shown):
        rows = [one for one in groups if one.value == value]
        y = np.array([one.prototype for one in rows]) + (number - (len(shown) - 1) / 2) * step
        colour, mean = OKABE_ITO[number], np.array([one.mean for one in rows])
        ax.hlines(y, [one.low for one in rows], [one.high for one in rows], color=colour, linewidth=1.8)
        label = f"{short(value, 20)} (n = {sizes[value]})"
        ax.scatter(
            mean, y, color=colour, marker=MARKERS[number], s=30, edgecolor=INK, linewidth=0.4, zorder=3, label=label
        )
    ax.legend(frameon=False, fontsize=8.5, loc="lower left", bbox_to_anchor=(-0.01, 1.0), ncols=3, borderpad=0.1)


def _heading(column: str, groups: Sequence[GroupShare]) -> str:
    hidden = len({one.value for one in groups}) - MOST_GROUPS
    more = f", the {MOST_GROUPS} largest of {hidden + MOST_GROUPS} groups" if hidden > 0 else ""
    return f"{column}{more}"


def _p_values(ax: Any, tests: dict[int, ShareTest]) -> None:
    """Corrected p-values in a column on the right; those below 0.05 are bold."""
    if not tests:
        return
    place = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "fontsize": 8.5, "va": "center"}
    for c, one in tests.items():
        known = not np.isnan(one.p_corrected)
        text = ("< 0.001" if one.p_corrected < 0.001 else f"{one.p_corrected:.3f}") if known else "-"
        bold = "bold" if known and one.p_corrected < 0.05 else "normal"
        ax.annotate(text, (1, c), xytext=(8, 0), weight=bold, **place)
    name = next(iter(tests.values())).test
    ax.annotate(
        f"p, {name},\nHolm",
        (1, 1),
        xycoords="axes fraction",
        xytext=(8, 6),
        textcoords="offset points",
        fontsize=8,
        va="bottom",
    )


def _square(ax: Any, values: np.ndarray, titles: Sequence[str], limit: float, what: str, *, extend: str) -> None:
    """Matrix in colours from -limit to limit; ``extend`` says at which ends there may be more."""
    from matplotlib import colormaps

    colours = colormaps["RdBu_r"].with_extremes(bad="#DDDDDD")  # not defined
    image = ax.imshow(np.ma.masked_invalid(values), cmap=colours, vmin=-limit, vmax=limit)
    count = len(titles)
    ax.set_xticks(range(count), [title.split(" ")[0] for title in titles], fontsize=8.5)
    ax.set_yticks(range(count), titles, fontsize=8.5)
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    if count <= NUMBERS_UP_TO:
        for (row, column), value in np.ndenumerate(values):
            if not np.isnan(value):
                dark = abs(value) > 0.6 * limit
                ax.text(
                    column,
                    row,
                    f"{round(value, 1) + 0.0:.1f}",
                    ha="center",
                    va="center",
                    fontsize=7.5,
                    color="white" if dark else INK,
                )
    ax.figure.colorbar(image, ax=ax, label=what, shrink=0.9, extend=extend, aspect=24)

"""Pictures about prototypes: the choice of C, and two sets side by side."""

from typing import Any

from panther.prototypes.compare import Comparison
from panther.prototypes.recommend import NEARLY_ALL, Choice
from panther.report.style import BLUE, GREY, ORANGE, new_figure


def draw_choice(choice: Choice) -> Any:
    """Draw the criteria over C, with the recommended one marked; returns a matplotlib figure."""
    figure, (likelihood, back, stability) = new_figure(12, 3.6, 3)
    _draw_likelihood(likelihood, choice)
    _draw_come_back(back, choice)
    _draw_stability(stability, choice)
    for ax in (likelihood, back, stability):
        ax.set_xlabel("number of prototypes C")
        ax.axvline(choice.recommended, color=ORANGE if choice.supported else GREY, linestyle="--", zorder=0)
    label = f"recommended: {choice.recommended}" if choice.supported else f"nearest: {choice.recommended}"
    likelihood.annotate(
        label, (choice.recommended, 0.04), xycoords=("data", "axes fraction"), xytext=(4, 0), textcoords="offset points"
    )
    return figure


def _draw_likelihood(ax: Any, choice: Choice) -> None:
    numbers = [c.n_prototypes for c in choice.candidates]
    heights, errors = zip(*((c.held_out, c.held_out_error) for c in choice.candidates), strict=True)
    ax.errorbar(numbers, heights, errors, color=BLUE, marker="o", capsize=3)
    ax.set_ylabel("log-likelihood per patch, unseen slides")
    ends = ", still rising" if choice.still_rising else f", enough at {choice.sufficient}"
    ax.set_title("Held-out likelihood" + ends, loc="left", fontsize=10)


def _draw_come_back(ax: Any, choice: Choice) -> None:
    numbers = [c.n_prototypes for c in choice.candidates]
    ax.plot(numbers, numbers, color=GREY, linewidth=1, label="all")
    ax.plot(numbers, [NEARLY_ALL * c for c in numbers], color=GREY, linestyle=":", label=f"{NEARLY_ALL:.0%}")
    counts, spreads = zip(*((c.come_back, c.come_back_spread) for c in choice.candidates), strict=True)
    ax.errorbar(numbers, counts, spreads, color=BLUE, marker="o", capsize=3, label="found in both halves")
    ax.set_ylabel("prototypes")
    ax.set_title("Prototypes that come back", loc="left", fontsize=10)
    ax.legend(frameon=False, fontsize=8)


def _draw_stability(ax: Any, choice: Choice) -> None:
    numbers = [c.n_prototypes for c in choice.candidates]
    for name, label, style in (
        ("stability_seeds", "two seeds", "o-"),
        ("stability_halves", "two halves of the cohort", "s--"),
        ("explained", "variance of unseen slides explained", "^:"),
    ):
        ax.plot(numbers, [getattr(c, name) for c in choice.candidates], style, label=label)
    ax.set_ylim(min(0, *(c.stability_halves for c in choice.candidates)) - 0.05, 1.05)
    ax.set_ylabel("adjusted Rand index; share of variance")
    ax.set_title("Agreement (1: the same every time)", loc="left", fontsize=10)
    ax.legend(frameon=False, fontsize=8)


def draw_comparison(comparison: Comparison, first: str, second: str) -> Any:
    """Heatmap of cosines between two sets, the matched pairs framed; returns a matplotlib figure."""
    from matplotlib.patches import Rectangle

    rows, columns = comparison.cosine.shape
    figure, ax = new_figure(2.2 + 0.32 * columns, 1.8 + 0.32 * rows)
    image = ax.imshow(comparison.cosine.numpy(), cmap="RdBu_r", vmin=-1, vmax=1)
    same = set(comparison.same)
    for i, j in zip(comparison.match.first.tolist(), comparison.match.second.tolist(), strict=True):
        style = "-" if (i, j) in same else ":"
        ax.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, fill=False, linewidth=1.5, linestyle=style))
    ax.set_xticks(
        range(columns), [f"C{c}" + ("*" if c in comparison.appeared else "") for c in range(columns)], rotation=90
    )
    ax.set_yticks(range(rows), [f"C{c}" + ("*" if c in comparison.vanished else "") for c in range(rows)])
    ax.set_xlabel(f"{second}  (* appeared)")
    ax.set_ylabel(f"{first}  (* vanished)")
    ax.spines[:].set_visible(True)
    figure.colorbar(image, ax=ax, label="cosine", shrink=0.8)
    return figure

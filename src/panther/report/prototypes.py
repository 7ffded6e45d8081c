"""Pictures about prototypes: the choice of C, and two sets side by side."""

from typing import Any

from panther.prototypes.choose import Choice
from panther.prototypes.compare import Comparison
from panther.report.style import BLUE, GREY, ORANGE, new_figure


def draw_choice(choice: Choice) -> Any:
    """Draw the criteria over C, with the recommended one marked; returns a matplotlib figure."""
    figure, (likelihood, bic, stability) = new_figure(12, 3.6, 3)
    numbers = [c.n_prototypes for c in choice.candidates]
    likelihood.errorbar(
        numbers,
        [c.held_out for c in choice.candidates],
        [c.held_out_error for c in choice.candidates],
        color=BLUE,
        marker="o",
        capsize=3,
    )
    likelihood.set_ylabel("log-likelihood a patch, unseen slides")
    likelihood.set_title("Held-out likelihood (higher is better)", loc="left", fontsize=10)
    bic.plot(numbers, [c.bic for c in choice.candidates], color=BLUE, marker="o")
    bic.set_ylabel("BIC a patch")
    bic.set_title("BIC (lower is better)", loc="left", fontsize=10)
    for name, label, style in (
        ("stability_seeds", "two seeds", "o-"),
        ("stability_halves", "two halves of the cohort", "s--"),
        ("centroid_agreement", "cosine of matched centroids", "^:"),
    ):
        stability.plot(numbers, [getattr(c, name) for c in choice.candidates], style, label=label)
    stability.set_ylim(min(0, *(c.stability_halves for c in choice.candidates)) - 0.05, 1.05)
    stability.set_ylabel("adjusted Rand index; cosine")
    stability.set_title("Stability (1: the same every time)", loc="left", fontsize=10)
    stability.legend(frameon=False, fontsize=8)
    for ax in (likelihood, bic, stability):
        ax.set_xlabel("number of prototypes C")
        ax.axvline(choice.recommended, color=ORANGE if not choice.still_rising else GREY, linestyle="--", zorder=0)
    label = "range ends here" if choice.still_rising else f"recommended: {choice.recommended}"
    likelihood.annotate(
        label, (choice.recommended, 0.04), xycoords=("data", "axes fraction"), xytext=(4, 0), textcoords="offset points"
    )
    return figure


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

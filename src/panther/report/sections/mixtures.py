"""Tab: how much of each prototype every sample has, and which samples are alike."""

from collections.abc import Sequence

import numpy as np

from panther.charts.results import scatter, scatter_by_number, weights_boxes, weights_heatmap
from panther.report.data import describing_columns, numeric
from panther.report.fold import Mixtures
from panther.report.html import Html, choice, join, paragraph, plot, tag
from panther.report.material import Material

MOST_SAMPLES = 600  # columns that a heatmap can show
MOST_POINTS = 3000  # of a scatter; the page holds one for every column


def mixtures(material: Material) -> Html | None:
    """Proportions, then the scatter of embeddings."""
    found = material.mixtures
    if found is None and material.slides is None:
        return None
    return join(
        tag("h2", "Mixtures"), _proportions(material), _scatter(material, found) if found and found.positions else None
    )


def _proportions(material: Material) -> Html | None:
    """Those of the atlas where there is one, for these prototypes have names; else of the run itself."""
    atlas = material.slides
    if atlas is not None:
        samples, weights = atlas.slides, atlas.weights
        names = [material.prototype(c, material.given.get(c)) for c in range(weights.shape[1])]
        source = "Slides, with the prototypes of the atlas."
    elif material.mixtures is not None and material.mixtures.weights is not None:
        own = material.folds_own
        assert own is not None
        samples, weights = list(material.mixtures.samples), material.mixtures.weights[:, own.order]
        names = [material.folds_prototype(own, c) for c in own.order]
        source = f"{_whose(material.mixtures)} {own.said}".rstrip()
    else:
        return None
    return join(
        tag("h3", "How much of each prototype"),
        paragraph(
            "π is the share of a sample's tissue that belongs to a prototype; each column adds up to 1. Samples stand in the "
            "order of their largest prototype, so "
            f"blocks are samples of one kind of tissue. {source}"
        ),
        _heatmap(samples, weights, names),
        _boxes(material, _as_in_cohort(material, samples), weights, names),
    )


def _whose(found: Mixtures) -> str:
    return f"Prototypes and weights are those of {found.row} in fold {found.fold + 1}; other folds have prototypes of their own."


def sorted_rows(weights: np.ndarray) -> np.ndarray:
    """Samples by their largest prototype, then by its share, falling."""
    largest = weights.argmax(1)
    return np.lexsort((-weights.max(1), largest))


def spread(count: int, most: int) -> np.ndarray:
    """All positions, or as many as may be, evenly over them."""
    return np.arange(count) if count <= most else np.linspace(0, count - 1, most).astype(int)


def _heatmap(samples: Sequence[str], weights: np.ndarray, names: Sequence[str]) -> Html:
    order = sorted_rows(weights)
    text = "π of every sample (columns) and prototype (rows)."
    if len(order) > MOST_SAMPLES:
        order = order[spread(len(order), MOST_SAMPLES)]
        text += f" {MOST_SAMPLES:,} of {len(samples):,} samples are shown, evenly chosen."
    mean = ", ".join(f"{n} {share:.0%}" for n, share in zip(names, weights.mean(0), strict=True))
    chart = weights_heatmap(weights[order], [samples[i] for i in order], names)
    return plot("weights", chart, f"{text} On average: {mean}.", text)


def _as_in_cohort(material: Material, samples: list[str]) -> list[str]:
    """Rows of the cohort: patients, where it has one row per patient and the atlas one per slide."""
    atlas = material.slides
    return samples if atlas is None or material.run.study.task.level != "patient" else atlas.patients


def _boxes(material: Material, samples: Sequence[str], weights: np.ndarray, names: Sequence[str]) -> Html | None:
    if not set(samples) & set(material.run.cohort.index):
        return None
    figures = {}
    for number, name in enumerate(_columns(material)):
        groups = _groups(material, name, samples)
        text = f"π of each prototype by {name}: the box holds the middle half of the samples, the whiskers 90 %."
        figures[name] = plot(f"boxes-{number}", weights_boxes(weights, groups, names), text)
    return join(tag("h3", "Who has more of what"), choice("boxes", "Divide by", figures)) if figures else None


def _groups(material: Material, name: str, samples: Sequence[str]) -> list[str]:
    values = material.run.cohort[name]
    numbers = numeric(values[values != ""])
    if numbers is None:
        return material.run.column(name, samples)
    median = float(np.nanmedian(numbers))
    own = {
        s: f"{name} {'above' if float(v) > median else 'at most'} {median:.6g}" for s, v in values.items() if v != ""
    }
    return [own.get(str(sample), "not known") for sample in samples]


def _columns(material: Material) -> list[str]:
    """The chosen column first."""
    found = describing_columns(material.run)
    chosen = [material.color_by] if material.color_by else []
    return [*chosen, *(name for name in found if name not in chosen)]


def _scatter(material: Material, found: Mixtures) -> Html:
    figures = {}
    rows = spread(len(found.samples), MOST_POINTS)
    samples = [found.samples[i] for i in rows]
    shown = "" if len(rows) == len(found.samples) else f" {len(rows):,} of them are drawn."
    for projection, (position, axes) in found.positions.items():
        for number, name in enumerate(_columns(material)):
            numbers = numeric(material.run.cohort[name].reindex(samples).fillna(""))
            if numbers is None:
                chart = scatter(position[rows], samples, material.run.column(name, samples), axes)
            else:
                chart = scatter_by_number(position[rows], samples, numbers, name, axes)
            text = f"{projection} of the embeddings of {len(found.samples):,} samples, coloured by {name}.{shown}"
            title = f"{name} ({projection})" if len(found.positions) > 1 else name
            figures[title] = plot(f"scatter-{projection.lower()}-{number}", chart, text, widest=900)
    whose = _whose(found)
    return join(
        tag("h3", "Which samples are alike"),
        paragraph(
            f"Every point is a sample; near points have alike tissue. If points gather by site rather than by outcome, be careful. {whose}"
        ),
        choice("scatter", "Colour by", figures),
    )

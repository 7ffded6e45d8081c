"""Attention of a supervised network as a map: how much each patch of a slide was looked at."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.stats import rankdata

from panther.errors import InputError, not_finite
from panther.explain import draw
from panther.explain.maps import MapSettings, check_coordinates, place, write_pictures
from panther.explain.requests import MapJob, notes_of
from panther.explain.slide_map import SlideMap, heat_colours, heat_pixels
from panther.models.model import Model, check_bag
from panther.statistics import first_bad_row
from panther.study.display_names import method_title
from panther.types import Bag

UNIFORM = 0.95  # of the patches: attention spread over more than this share of them says little


class Attention(NamedTuple):
    """What a network looked at, and what it said."""

    weights: np.ndarray  # (N, k), each column adds up to 1 over the slide; k is 1, or one column an output (DSMIL)
    prediction: dict[str, np.ndarray]  # of the task, one sample


@dataclass(frozen=True)
class Scale:
    """How attention becomes a colour; both are within the slide, because attention adds up to 1 whatever the slide holds."""

    label: str
    of: Callable[[np.ndarray], np.ndarray]  # (N, k) -> (N, k) from 0 to 1


SCALES = {
    "rank": Scale(
        "rank of the attention within the slide", lambda a: (rankdata(a, axis=0) - 0.5) / len(a)
    ),  # equal ones share a rank
    "linear": Scale("attention, as a share of the slide's largest", lambda a: a / a.max(0)),
}


@dataclass(frozen=True)
class AttentionMap:
    """A slide's attention before it is drawn."""

    shown: SlideMap  # its shares are the scaled attention (N, k)
    attention: Attention
    titles: tuple[str, ...]  # k
    main: int  # column of the predicted output
    scale: Scale
    prediction: Mapping[str, float]  # class and its probability, or the risk

    @property
    def predicted(self) -> str:
        """Prediction in words."""
        return ", ".join(f"{name} {value:.2f}" for name, value in self.prediction.items())

    @property
    def effective(self) -> float:
        r"""Number of patches that share the attention, :math:`1 / \sum_n a_n^2`: N where all are equal, 1 where one has it all."""
        return float(1 / np.square(self.attention.weights[:, self.main]).sum())


def attention(bag: Bag, model: Model) -> Attention:
    """Attention that each patch received, and the prediction that came of it."""
    if model.scaler is not None:
        raise InputError(f"The model is {model.method.name} with a head and has no attention; map its prototypes.")
    check_bag(model, bag)
    if len(bag) == 0:
        raise InputError(f"{bag.source}: zero patches; there is nothing to map.")
    with torch.no_grad():
        found = model.network(bag.features, with_assignment=True)
    weights = found.embedding.assignment
    assert weights is not None
    if not bool(torch.isfinite(weights).all()) or not bool(torch.isfinite(found.logits).all()):
        bad = first_bad_row(bag.features)
        if bad is None:
            raise InputError(f"{bag.source}: the network gives no finite attention; its features are too large.")
        raise not_finite(bag.source, bad)
    return Attention(weights[0].double().cpu().numpy(), model.task.predict(found.logits))


def make_attention_map(
    bag: Bag,
    model: Model,
    settings: MapSettings | None = None,
    scale: str = "rank",
    image: Path | None = None,
    contours: Path | None = None,
) -> AttentionMap:
    """Attention of one slide, over its image or without one on the grid of its coordinates."""
    settings = settings or MapSettings()
    if scale not in SCALES:
        raise InputError(f"There is no scale {scale!r} of attention; known are {', '.join(SCALES)}.")
    check_coordinates(bag)
    looked = attention(bag, model)
    where = place(bag, settings, image, contours)
    shares = SCALES[scale].of(looked.weights).astype(np.float32)
    many = shares.shape[1] > 1
    main = int(looked.prediction["probabilities"][0].argmax()) if many and "probabilities" in looked.prediction else 0
    shown = SlideMap(
        bag.slide_id,
        where.grid,
        shares,
        shares.mean(0),
        where.view,
        {},
        where.outline,
        heat_colours(shares[:, main]),
        settings.paint,
    )
    said = _said(model, looked.prediction)
    return AttentionMap(shown, looked, _titles(model, shares.shape[1]), main, SCALES[scale], said)


@draw.plain_text
def draw_attention(found: AttentionMap) -> Any:
    """Heatmap of the attention, one for each output where the network has several; returns a matplotlib figure."""
    many = len(found.titles) > 1
    shown = found.shown.within(draw.SMALL_PANEL) if many else found.shown
    unit = draw.unit_of(shown)
    rows = max(1, round((len(found.titles) * shown.view.size[0] / shown.view.size[1] / 1.6) ** 0.5))
    sheet = draw.Sheet([heat_pixels(shown, k) for k in range(len(found.titles))], 80 * unit, unit, rows)
    for number, title in enumerate(found.titles):
        sheet.title(number, title if many else f"{shown.slide}: {title}")
    draw.colour_bar(sheet, draw.Bar(found.scale.label))
    draw.add_scale_bar_and_outline(sheet, shown)
    return sheet.figure


@draw.plain_text
def draw_attention_beside(found: AttentionMap) -> Any:
    """Original (where there is an image) and attention for the predicted output; returns a matplotlib figure."""
    shown = found.shown.within(draw.PANEL)
    unit = draw.unit_of(shown)
    title = f"{found.titles[found.main]} (predicted: {found.predicted})"
    panels = {shown.slide: shown.view.background, title: heat_pixels(shown, found.main)}
    if shown.view.blank:
        del panels[shown.slide]
    sheet = draw.Sheet(list(panels.values()), 80 * unit, unit)
    for number, title in enumerate(panels):
        sheet.title(number, title)
    draw.colour_bar(sheet, draw.Bar(found.scale.label))
    draw.add_scale_bar_and_outline(sheet, shown)
    return sheet.figure


@dataclass(frozen=True)
class AttentionDone:
    """What was written for one slide."""

    slide: str
    patches: int
    effective: float
    prediction: Mapping[str, float]
    predicted: str
    files: tuple[Path, ...]
    notes: tuple[str, ...]

    @property
    def summary(self) -> str:
        """Prediction, and on how many patches the attention lies."""
        return f"{self.predicted}, attention spread over about {self.effective:,.0f}"

    def told(self) -> dict[str, Any]:
        """Plain values."""
        kept = {"slide": self.slide, "patches": self.patches, "effective_patches": self.effective}
        return {**kept, "prediction": dict(self.prediction), "files": [str(file) for file in self.files]}


def run_attention(
    job: MapJob, model: Model, settings: MapSettings, folder: Path, scale: str, formats: tuple[str, ...]
) -> AttentionDone:
    """Map one slide's attention and write `SLIDE.attention`, `SLIDE.side_by_side` and the overlays."""
    bag = job.ref.open()
    found = make_attention_map(bag, model, settings, scale, job.image, job.contours)
    figures = {"attention": lambda: draw_attention(found), "side_by_side": lambda: draw_attention_beside(found)}
    files = write_pictures(found.shown, folder, figures, formats)
    notes = [*job.notes, *notes_of(found.shown, formats)]
    if found.effective > UNIFORM * len(bag) and len(bag) > 1:
        notes.append(
            f"{found.shown.slide}: the attention is nearly the same everywhere (as of {found.effective:,.0f} of {len(bag):,} patches), so its ranks "
            "say little; compare with `attention=linear`."
        )
    return AttentionDone(
        found.shown.slide,
        len(bag),
        found.effective,
        found.prediction,
        found.predicted,
        tuple(files),
        tuple(notes),
    )


def _titles(model: Model, columns: int) -> tuple[str, ...]:
    """What each column of the attention belongs to."""
    name = method_title(model.method.name)
    if columns == 1:
        return (f"attention of {name}",)
    outputs = getattr(model.task, "names", None) or [f"time bin {k + 1}" for k in range(columns)]
    return tuple(f"attention of {name} for {output}" for output in outputs)


def _said(model: Model, prediction: dict[str, np.ndarray]) -> dict[str, float]:
    """Prediction in words: the class and its probability, or the risk."""
    if "probabilities" not in prediction:
        return {"risk": float(prediction["risk"][0])}
    row = prediction["probabilities"][0]
    return {model.task.names[int(row.argmax())]: float(row.max())}  # type: ignore[attr-defined]

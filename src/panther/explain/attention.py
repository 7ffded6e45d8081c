"""Attention of a supervised network as a map: how much each patch of a slide was looked at."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.stats import rankdata

from panther.charts.display_names import method_title
from panther.charts.style import plain_text
from panther.errors import InputError, not_finite
from panther.explain import draw
from panther.explain.assign import check_patches
from panther.explain.scene import MapSettings, place
from panther.explain.slide_map import SlideMap, heat_colours, heat_pixels
from panther.limits import check_choice
from panther.models.model import Model, check_bag
from panther.statistics import first_bad_row
from panther.statistics.upload import near
from panther.types import Bag

UNIFORM = 0.95  # of the patches: attention spread over more than this share of them says little


class Attention(NamedTuple):
    """Attention and prediction of a network."""

    weights: np.ndarray  # (N, k), each column adds up to 1 over the slide; k is 1, or one column per output (DSMIL)
    prediction: dict[str, np.ndarray]  # of the task, one sample


@dataclass(frozen=True)
class Scale:
    """How attention becomes a colour; both are within the slide, because attention adds up to 1 whatever the slide holds."""

    label: str
    of: Callable[[np.ndarray], np.ndarray]  # (N, k) -> (N, k) from 0 to 1


def _ranks(weights: np.ndarray) -> np.ndarray:
    return np.asarray((rankdata(weights, axis=0) - 0.5) / len(weights))  # equal ones share a rank


def _of_largest(weights: np.ndarray) -> np.ndarray:
    return np.asarray(weights / weights.max(0))


SCALES = {
    "rank": Scale("rank of the attention within the slide", _ranks),
    "linear": Scale("attention, as a share of the slide's largest", _of_largest),
}


@dataclass(frozen=True, kw_only=True)
class AttentionMap(SlideMap):
    """Map of a network's attention; ``assignment`` (N, k) is the attention as it is shown, scaled from 0 to 1."""

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

    @property
    def summary(self) -> str:
        """Prediction, and on how many patches the attention lies."""
        return f"{self.predicted}, attention spread over about {self.effective:,.0f}"

    def numbers(self) -> dict[str, Any]:
        """Plain values: the prediction, and on how many patches the attention lies."""
        return {"effective_patches": self.effective, "prediction": dict(self.prediction)}

    def drawings(self, prototypes: Sequence[int] | None = None) -> dict[str, Callable[[], Any]]:
        """Functions that draw its figures."""
        return {"attention": partial(draw_attention, self), "side_by_side": partial(draw_attention_beside, self)}

    def notes(self, formats: Sequence[str] = ()) -> list[str]:
        """What the map lacks, and whether it says anything."""
        notes, patches = super().notes(formats), len(self.assignment)
        if self.effective > UNIFORM * patches and patches > 1:
            notes.append(
                f"{self.slide}: the attention is nearly the same everywhere (as of {self.effective:,.0f} of {patches:,} patches), so its ranks "
                "say little; compare with `attention=linear`."
            )
        return notes


def attention(bag: Bag, model: Model, device: str = "cpu") -> Attention:
    """Attention that each patch received, and the prediction that came of it."""
    if model.scaler is not None:
        raise InputError(f"The model is {model.method.name} with a head and has no attention; map its prototypes.")
    check_bag(model, bag)
    check_patches(bag)
    with torch.no_grad():
        network = model.network if device == "cpu" else copy.deepcopy(model.network).to(device)
        found = network(near(bag.features, device), with_assignment=True)
    weights = found.embedding.assignment
    assert weights is not None
    if not bool(torch.isfinite(weights).all()) or not bool(torch.isfinite(found.logits).all()):
        bad = first_bad_row(bag.features)
        if bad is None:
            raise InputError(f"{bag.source}: the network gives no finite attention; its features are too large.")
        raise not_finite(bag.source, bad)
    return Attention(weights[0].double().cpu().numpy(), model.task.predict(found.logits.cpu()))


def map_attention(
    bag: Bag,
    model: Model,
    settings: MapSettings | None = None,
    scale: str = "rank",
    image: Path | None = None,
    contours: Path | None = None,
) -> AttentionMap:
    """Attention of one slide, over its image or without one on the grid of its coordinates."""
    settings = settings or MapSettings()
    check_choice("attention scale", scale, SCALES)
    scene = place(bag, settings, image, contours)
    looked = attention(bag, model, settings.device)
    shares = SCALES[scale].of(looked.weights).astype(np.float32)
    many = shares.shape[1] > 1
    main = int(looked.prediction["probabilities"][0].argmax()) if many and "probabilities" in looked.prediction else 0
    return AttentionMap(
        bag.slide_id,
        scene.grid,
        shares,
        shares.mean(0),
        scene.view,
        outline=scene.outline,
        colours=heat_colours(shares[:, main]),
        paint=settings.paint,
        attention=looked,
        titles=attention_titles(model, shares.shape[1]),
        main=main,
        scale=SCALES[scale],
        prediction=_predicted(model, looked.prediction),
    )


@plain_text
def draw_attention(attention_map: AttentionMap) -> Any:
    """Heatmap of the attention, one for each output where the network has several; returns a matplotlib figure."""
    many = len(attention_map.titles) > 1
    shown = attention_map.within(draw.SMALL_PANEL) if many else attention_map
    unit = draw.unit_of(shown)
    titles = attention_map.titles if many else (f"{shown.slide}: {attention_map.titles[0]}",)
    panels = [(title, heat_pixels(shown, k)) for k, title in enumerate(titles)]
    sheet = draw.Sheet(panels, 80 * unit, unit, draw.rows_for(shown, len(panels)))
    draw.colour_bar(sheet, draw.ColourBar(attention_map.scale.label))
    draw.add_scale_bar_and_outline(sheet, shown)
    return sheet.figure


@plain_text
def draw_attention_beside(attention_map: AttentionMap) -> Any:
    """Original (where there is an image) and attention for the predicted output; returns a matplotlib figure."""
    shown = attention_map.within(draw.PANEL)
    unit = draw.unit_of(shown)
    title = f"{attention_map.titles[attention_map.main]} (predicted: {attention_map.predicted})"
    sheet = draw.Sheet([*draw.original(shown), (title, heat_pixels(shown, attention_map.main))], 80 * unit, unit)
    draw.colour_bar(sheet, draw.ColourBar(attention_map.scale.label))
    draw.add_scale_bar_and_outline(sheet, shown)
    return sheet.figure


ATTENDED = {
    "nll": "time bin",
    "ordinal": "threshold",
}  # what a network's outputs are, where they are not what it predicts


def attention_titles(model: Model, columns: int) -> tuple[str, ...]:
    """What each column of the attention belongs to."""
    name = method_title(model.method.name)
    if columns == 1:
        return (f"attention of {name}",)
    names = model.task.output_names
    outputs = (
        names
        if len(names) == columns
        else [f"{ATTENDED.get(model.task.name, 'output')} {k + 1}" for k in range(columns)]
    )
    return tuple(f"attention of {name} for {output}" for output in outputs)


def _predicted(model: Model, prediction: dict[str, np.ndarray]) -> dict[str, float]:
    """Prediction in words: the class and its probability, each label's probability, the risk, or the value."""
    row = model.task.numbers(prediction)[0]
    text = {name: float(value) for name, value in zip(model.task.output_names, row, strict=True)}
    likeliest = max(text, key=text.__getitem__)
    return {likeliest: text[likeliest]} if model.task.kind == "classification" else text

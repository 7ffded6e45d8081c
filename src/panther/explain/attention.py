"""Attention of a supervised network as a map: the weight of each patch of a slide."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.stats import rankdata

from panther.charts.display_names import method_title
from panther.charts.style import plain_text
from panther.errors import InputError, not_finite, too_large
from panther.explain import slide_map as draw
from panther.explain.scene import MapSettings, check_patches, place
from panther.explain.slide_map import SlideMap
from panther.models.model import Model, as_model, check_bag
from panther.statistics import first_bad_row
from panther.statistics.upload import near
from panther.types import Bag, Prototypes

UNIFORM = 0.95  # share of the patches over which attention is spread, from which a note is due


class Attention(NamedTuple):
    """Attention and prediction of a network."""

    weights: np.ndarray  # (N, k), each column adds up to 1 over the slide; k is 1, or one column per output (DSMIL)
    prediction: dict[str, np.ndarray]  # of the task, one sample


@dataclass(frozen=True)
class Scale:
    """Scale of the colours, relative to the slide because the attention of every slide adds up to 1."""

    label: str
    of: Callable[[np.ndarray], np.ndarray]  # (N, k) -> (N, k) from 0 to 1


SCALES = {
    # equal ones share a rank
    "rank": Scale("rank of the attention within the slide", lambda w: (rankdata(w, axis=0) - 0.5) / len(w)),
    "linear": Scale("attention, as a share of the slide's largest", lambda w: w / w.max(0)),
}


@dataclass(frozen=True, kw_only=True)
class AttentionMap(SlideMap):
    """Map of a network's attention; ``assignment`` (N, k) is the attention scaled from 0 to 1."""

    attention: Attention
    titles: tuple[str, ...]  # k
    main: int  # column of the predicted output
    scale: Scale
    prediction: Mapping[
        str, float
    ]  # the likeliest class with its probability, the labels' probabilities, risk or value

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
        """Prediction, and the number of patches that share the attention."""
        return f"{self.predicted}, attention spread over about {self.effective:,.0f}"

    def numbers(self) -> dict[str, Any]:
        """Plain values: the prediction, and the number of patches that share the attention."""
        return {"effective_patches": self.effective, "prediction": dict(self.prediction)}

    def drawings(self, prototypes: Sequence[int] | None = None) -> dict[str, Callable[[], Any]]:
        """Functions that draw its figures."""
        return {"attention": lambda: draw_attention(self), "side_by_side": lambda: draw_attention_beside(self)}

    def notes(self, formats: Sequence[str] = ()) -> list[str]:
        """Sentences about what is missing from the map, and about attention that is nearly uniform."""
        notes, patches = super().notes(formats), len(self.assignment)
        if self.effective > UNIFORM * patches and patches > 1:
            notes.append(
                f"{self.slide}: the attention is nearly the same everywhere (as of {self.effective:,.0f} of {patches:,} patches), so its ranks "
                "say little; compare with `attention=linear`."
            )
        return notes


def shown_by(model: Model | Path | str) -> tuple[Prototypes | None, str, dict[str, Any], Model | None]:
    """Prototypes, method and options of a model's map, or the network."""
    trained = as_model(model)
    if trained.scaler is None:
        return None, trained.method.name, {}, trained
    if trained.prototypes is None:
        raise InputError(
            f"model: {trained.method.title!r} assigns no patches, expected panther, ot, h2t, protocounts or a network"
        )
    return trained.prototypes, trained.method.name, dict(trained.method.options), None


def attention(bag: Bag, model: Model, device: str = "cpu") -> Attention:
    """Attention of each patch, and the network's prediction."""
    if model.scaler is not None:
        raise InputError(f"The model is {model.method.name} with a head and has no attention; map its prototypes.")
    check_bag(model, bag)
    check_patches(bag)
    with torch.no_grad():
        network = model.network if device == "cpu" else copy.deepcopy(model.network).to(device)
        output = network(near(bag.features, device), with_assignment=True)
    weights = output.embedding.assignment
    assert weights is not None
    if not bool(torch.isfinite(weights).all()) or not bool(torch.isfinite(output.logits).all()):
        bad = first_bad_row(bag.features)
        raise too_large(bag.source) if bad is None else not_finite(bag.source, bad)
    return Attention(weights[0].double().cpu().numpy(), model.task.predict(output.logits.cpu()))


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
    cells, view, outline = place(bag, settings, image, contours)
    received = attention(bag, model, settings.device)
    shares = SCALES[scale].of(received.weights).astype(np.float32)
    probabilities = received.prediction.get("probabilities")
    main = 0 if probabilities is None or shares.shape[1] == 1 else int(probabilities[0].argmax())
    row = model.task.numbers(received.prediction)[0]
    prediction = {name: float(value) for name, value in zip(model.task.names, row, strict=True)}
    if model.task.kind == "classification":
        likeliest = max(prediction, key=prediction.__getitem__)
        prediction = {likeliest: prediction[likeliest]}
    return AttentionMap(
        bag.slide_id,
        cells,
        shares,
        shares.mean(0),
        view,
        outline=outline,
        colours=draw.heat_colours(shares[:, main]),
        paint=settings.paint,
        attention=received,
        titles=attention_titles(model, shares.shape[1]),
        main=main,
        scale=SCALES[scale],
        prediction=prediction,
    )


@plain_text
def draw_attention(attention_map: AttentionMap) -> Any:
    """Heatmap of the attention, one for each output where the network has several; returns a matplotlib figure."""
    shown: SlideMap = attention_map
    titles = attention_map.titles
    if len(titles) == 1:
        titles = (f"{shown.slide}: {titles[0]}",)
    else:
        shown = shown.within(draw.SMALL_PANEL)
    panels = [(title, draw.heat_pixels(shown, k)) for k, title in enumerate(titles)]
    return draw.sheet_figure(shown, panels, bar=draw.ColourBar(attention_map.scale.label), in_rows=True)


@plain_text
def draw_attention_beside(attention_map: AttentionMap) -> Any:
    """Original (where there is an image) and attention for the predicted output; returns a matplotlib figure."""
    shown, main = attention_map.within(draw.PANEL), attention_map.main
    title = f"{attention_map.titles[main]} (predicted: {attention_map.predicted})"
    panels = [*draw.original(shown), (title, draw.heat_pixels(shown, main))]
    return draw.sheet_figure(shown, panels, bar=draw.ColourBar(attention_map.scale.label))


# outputs of a network that differ from its predictions
OUTPUTS = {"nll": "time bin", "ordinal": "threshold"}


def attention_titles(model: Model, columns: int) -> tuple[str, ...]:
    """Output that each column of the attention belongs to."""
    name, outputs = method_title(model.method.name), model.task.names
    if columns == 1:
        return (f"attention of {name}",)
    if len(outputs) != columns:
        outputs = tuple(f"{OUTPUTS.get(model.task.name, 'output')} {k + 1}" for k in range(columns))
    return tuple(f"attention of {name} for {output}" for output in outputs)

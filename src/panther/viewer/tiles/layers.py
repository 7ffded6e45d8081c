"""What can lie over a slide: each layer says what it shows, and gives every patch its colour."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from panther.explain import palette
from panther.explain.palette import rgb_values
from panther.explain.slide_map import HEAT, heat_colours
from panther.viewer.patches import PatchMap
from panther.viewer.tiles.asked import Asked
from panther.viewer.tiles.png import LEVELS, Colours
from panther.viewer.workbench import UnknownError, Workbench

STOPS = 9  # of a colour bar that is sent to the page


@dataclass(frozen=True)
class Layer:
    """One overlay as the page lists it."""

    id: str
    title: str
    kind: str  # categories, values or lines
    low: float | None = None  # ends of the colour bar
    high: float | None = None
    unit: str | None = None
    scale: str = ""  # colour map of values
    classes: tuple[tuple[str, str], ...] = ()  # title and colour of each
    outputs: tuple[str, ...] = ()  # of a model, where one can be chosen

    def to_dict(self) -> dict[str, Any]:
        """Plain values for the page."""
        found: dict[str, Any] = {"id": self.id, "title": self.title, "kind": self.kind}
        found |= {"low": self.low, "high": self.high, "unit": self.unit}
        if self.kind == "values":
            found["colours"] = [_hex(colour) for colour in heat_colours(np.linspace(0, 1, STOPS), self.scale)]
        if self.classes:
            found["classes"] = [
                {"id": number, "name": title, "colour": colour} for number, (title, colour) in enumerate(self.classes)
            ]
        if self.outputs:
            found["outputs"] = list(self.outputs)
        return found


@dataclass(frozen=True, eq=False)
class Painted:
    """A layer with the colours of the patches, for tiles."""

    layer: Layer
    colours: Colours
    values: np.ndarray | None = field(default=None, repr=False)  # (N,), what the colours say


def prototypes(bench: Workbench, found: PatchMap, asked: Asked) -> Painted | None:
    """Prototype of every patch."""
    if found.grid is None or found.assignment is None:
        return None
    look = prototype_look(bench, asked.set)
    layer = Layer("prototypes", "Prototypes", "categories", classes=tuple(look))
    return Painted(layer, of_classes(found.labels, look, asked.shown))


def posterior(bench: Workbench, found: PatchMap, asked: Asked) -> Painted | None:
    """Share of one prototype in every patch."""
    if found.grid is None or found.assignment is None:
        return None
    title = prototype_look(bench, asked.set)[asked.prototype][0]
    layer = Layer("posterior", f"Posterior of {title}", "values", 0.0, 1.0, scale=HEAT)
    return of_values(layer, found.assignment[:, asked.prototype], asked)


def of_classes(labels: np.ndarray, look: Sequence[tuple[str, str]], isolated: frozenset[int] | None) -> Colours:
    """Colours of labels (N,); where some are isolated the others are transparent, and so are patches without one (-1)."""
    shown = labels >= 0 if isolated is None else np.isin(labels, list(isolated)) & (labels >= 0)
    return Colours.of_classes(labels, rgb_values([colour for _, colour in look]), shown)


def of_values(layer: Layer, values: np.ndarray, asked: Asked) -> Painted:
    """Colours of values (N,) on the layer's scale; those outside of what is asked for are transparent."""
    assert layer.low is not None
    assert layer.high is not None
    low, high = asked.keeps(layer.low, layer.high)
    width = layer.high - layer.low
    parts = (values - layer.low) / width if width > 0 else np.full(len(values), 0.5)
    scale = heat_colours(np.linspace(0, 1, LEVELS), layer.scale)
    return Painted(layer, Colours.of_values(parts, scale, (values >= low) & (values <= high)), values)


def prototype_look(bench: Workbench, prototypes: str | None) -> list[tuple[str, str]]:
    """Title and colour of each prototype, as people have named them."""
    if hasattr(bench, "look"):
        return list(bench.look(prototypes))
    return [(f"C{c}", palette.colour(c)) for c in range(len(bench.prototypes(prototypes)))]


def _hex(colour: np.ndarray) -> str:
    return "#" + "".join(f"{part:02x}" for part in colour.tolist())


Paint = Callable[[Workbench, PatchMap, Asked], Painted | None]  # None: this slide has no such layer
LAYERS: dict[str, Paint] = {"prototypes": prototypes, "posterior": posterior}


def paint(bench: Workbench, found: PatchMap, layer: str, asked: Asked) -> Painted:
    """Colours of one layer; one that is not there is refused in a sentence."""
    if layer not in LAYERS:
        raise UnknownError(f"There is no layer {layer!r}.")
    painted = LAYERS[layer](bench, found, asked)
    if painted is None:
        why = " ".join(found.notes) or "it needs features, their coordinates and prototypes."
        raise UnknownError(f"{found.slide}: the layer {layer!r} cannot be shown; {why}")
    return painted

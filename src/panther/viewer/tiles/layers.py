"""What can lie over a slide: each layer says what it shows, and gives every patch its colour."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from panther.errors import InputError
from panther.explain import palette
from panther.explain.attention import SCALES
from panther.explain.concordance.write import CONCORDANCE
from panther.explain.palette import rgb_values
from panther.explain.slide_map import DIVERGING, HEAT, heat_colours
from panther.limits import check_choice
from panther.storage.fingerprints import version_of
from panther.viewer.kept import Kept
from panther.viewer.patches import PatchMap
from panther.viewer.tiles.asked import Asked
from panther.viewer.tiles.png import LEVELS, Colours
from panther.viewer.tiles.values import Classes, Outputs, agreed, attended, attributed, classified, is_network
from panther.viewer.workbench import UnknownError, Workbench

STOPS = 9  # of a colour bar that is sent to the page
VALUES = 64 << 20  # bytes of what models said of slides
OF_MODELS = {
    "attribution": ("Attribution of the prediction", DIVERGING),
    "attention": ("Attention of the network", HEAT),
}
NEEDS = {
    "prototypes": "it needs prototypes; fit some with `panther prototypes`, or open one (`panther view FOLDER --prototypes FILE`).",
    "posterior": "it needs prototypes; fit some with `panther prototypes`, or open one (`panther view FOLDER --prototypes FILE`).",
    "attribution": "it needs a model with prototypes and a head; open one (`panther view FOLDER --model FILE`).",
    "attention": "it needs a network; open one (`panther view FOLDER --model FILE`).",
    "classes": "it needs a tissue classifier, or `panther concordance` with these prototypes.",
}


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
    output: str | None = None  # the one that is shown

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
            found |= {"outputs": list(self.outputs), "output": self.output}
        return found


@dataclass(frozen=True, eq=False)
class Painted:
    """A layer with the colours of the patches, for tiles."""

    layer: Layer
    colours: Colours
    labels: np.ndarray | None = None  # (N,), class of each patch where there are classes


Paint = Callable[[PatchMap, Asked], Painted | None]  # None: this slide has no such layer


class Layers:
    """Layers of one workbench; what models say of a slide is computed once as long as it is kept. Threads may share it."""

    def __init__(self, bench: Workbench) -> None:
        self.bench = bench
        self._values: Kept[Any] = Kept(VALUES, weigh=_bytes)
        self._networks: Kept[bool] = Kept(1000)
        self._paints: dict[str, Paint] = {
            "prototypes": self._prototypes,
            "posterior": self._posterior,
            "attribution": self._attribution,
            "attention": self._attention,
            "classes": self._classes,
        }

    def paint(self, found: PatchMap, layer: str, asked: Asked) -> Painted:
        """Colours of one layer; one that is not there is refused in a sentence."""
        if layer not in self._paints:
            raise UnknownError(f"There is no layer {layer!r}.")
        painted = None if found.grid is None else self._paints[layer](found, asked)
        if painted is None:
            why = " ".join(found.notes) or NEEDS[layer]
            raise UnknownError(f"{found.slide}: the layer {layer!r} cannot be shown; {why}")
        return painted

    def available(self, found: PatchMap, asked: Asked) -> tuple[list[Layer], list[str]]:
        """Layers that a slide has, and why others cannot be shown.

        What a model says takes time, so its limits are told only where the model was asked for.
        """
        layers: list[Layer] = []
        notes: list[str] = []
        for name in self._paints:
            try:
                layers.append(self._unread(name, asked) or self.paint(found, name, asked).layer)
            except UnknownError:
                continue  # the notes of the patches say why
            except InputError as error:
                notes.append(str(error))
        return (layers if found.grid is not None else []), notes

    def _unread(self, layer: str, asked: Asked) -> Layer | None:
        """A model's layer before anybody asked for it."""
        if layer not in OF_MODELS or asked.model is not None or not self.bench.contents.models:
            return None
        if self._of_kind(layer) is None:
            raise UnknownError(NEEDS[layer])
        return Layer(layer, OF_MODELS[layer][0], "values", scale=OF_MODELS[layer][1])

    def _prototypes(self, found: PatchMap, asked: Asked) -> Painted | None:
        """Prototype of every patch."""
        if found.assignment is None:
            return None
        look = prototype_look(self.bench, asked.set)
        layer = Layer("prototypes", "Prototypes", "categories", classes=tuple(look))
        return Painted(layer, of_classes(found.labels, look, asked.shown), found.labels)

    def _posterior(self, found: PatchMap, asked: Asked) -> Painted | None:
        """Share of one prototype in every patch."""
        if found.assignment is None:
            return None
        title = prototype_look(self.bench, asked.set)[asked.prototype][0]
        layer = Layer("posterior", f"Posterior of {title}", "values", 0.0, 1.0, "share of the patch", HEAT)
        return of_values(layer, found.assignment[:, asked.prototype], asked)

    def _attribution(self, found: PatchMap, asked: Asked) -> Painted | None:
        """What each patch's prototype adds to a prediction: red adds, blue takes away."""
        outputs = self._said(attributed, "attribution", found, asked)
        if outputs is None:
            return None
        k = _chosen(outputs, asked)
        limit = outputs.limits[k]
        title = f"What adds to {outputs.titles[k]}, or takes from it"
        layer = Layer("attribution", title, "values", -limit, limit, "contribution of the patch's prototype", DIVERGING)
        return of_values(replace(layer, outputs=outputs.titles, output=outputs.titles[k]), outputs.values[k], asked)

    def _attention(self, found: PatchMap, asked: Asked) -> Painted | None:
        """How much a network looked at each patch, by rank or in proportion."""
        check_choice("attention scale", asked.scale or "rank", SCALES)
        outputs = self._said(attended, "attention", found, asked)
        if outputs is None:
            return None
        k, scale = _chosen(outputs, asked), SCALES[asked.scale or "rank"]
        layer = Layer(
            "attention", outputs.titles[k][:1].upper() + outputs.titles[k][1:], "values", 0.0, 1.0, scale.label, HEAT
        )
        values = scale.of(outputs.values[k][:, None])[:, 0]
        return of_values(replace(layer, outputs=outputs.titles, output=outputs.titles[k]), values, asked)

    def _classes(self, found: PatchMap, asked: Asked) -> Painted | None:
        """Tissue class of every patch: of a classifier where there is one, else of its prototype in a concordance."""
        contents, entry = self.bench.contents, self.bench.slide(found.slide)
        classes = None
        if contents.classifiers and entry.features is not None:
            path = next(iter(contents.classifiers.values()))
            key = found.identity, "classes"
            classes = self._values.get(
                key, lambda: self.bench.compute(classified, entry.features, path), version_of([path])
            )
            labels = _of_these(classes.labels, found)
        elif found.assignment is not None and contents.artefacts.get("concordance"):
            own, folders = self.bench.prototypes(asked.set), contents.artefacts["concordance"]
            classes = self._values.get(
                ("agreed", asked.set),
                lambda: self.bench.compute(agreed, folders, own.content_hash(), len(own)),
                version_of(folder / CONCORDANCE for folder in folders),
            )
            labels = found.labels if classes is None else classes.labels[found.labels]
        if classes is None:
            return None
        look = [(name, palette.colour(k)) for k, name in enumerate(classes.names)]
        layer = Layer("classes", "Tissue classes", "categories", classes=tuple(look))
        return Painted(layer, of_classes(labels, look, asked.shown), labels)

    def _said(self, ask: Callable[..., Outputs], layer: str, found: PatchMap, asked: Asked) -> Outputs | None:
        """What a model says of the slide, kept; None where there is no such model."""
        entry, model = self.bench.slide(found.slide), asked.model or self._of_kind(layer)
        if model is None or entry.features is None:
            return None
        if model not in self.bench.contents.models:
            raise UnknownError(f"There is no model {model!r} here.")
        path = self.bench.contents.models[model]
        if self._is_network(model) != (layer == "attention"):
            return None
        outputs = self._values.get(
            (found.identity, layer, model), lambda: self.bench.compute(ask, entry.features, path)
        )
        _of_these(outputs.values[0], found)
        return outputs

    def _of_kind(self, layer: str) -> str | None:
        """First model that has this layer; one that cannot be read has none."""
        for name in self.bench.contents.models:
            with suppress(InputError):
                if self._is_network(name) == (layer == "attention"):
                    return name
        return None

    def _is_network(self, model: str) -> bool:
        path = self.bench.contents.models[model]
        return self._networks.get(model, lambda: self.bench.compute(is_network, path), version_of([path]))


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
    return Painted(layer, Colours.of_values(parts, scale, (values >= low) & (values <= high)))


def prototype_look(bench: Workbench, prototypes: str | None) -> list[tuple[str, str]]:
    """Title and colour of each prototype, as people have named them."""
    return bench.look(prototypes)


def _chosen(outputs: Outputs, asked: Asked) -> int:
    """Output that is asked for; the predicted one by default."""
    if asked.output is None:
        return outputs.main
    if asked.output not in outputs.titles:
        raise UnknownError(f"The model has no output {asked.output!r}; it has {', '.join(outputs.titles)}.")
    return outputs.titles.index(asked.output)


def _of_these(values: np.ndarray, found: PatchMap) -> np.ndarray:
    """Values, if there is one for each patch of the map."""
    assert found.grid is not None
    if len(values) != len(found.grid.cells):
        raise InputError(f"{found.slide}: its features have changed since they were opened; start the viewer again.")
    return values


def _bytes(said: Outputs | Classes | None) -> int:
    """Bytes of what is kept."""
    return 1024 + sum(part.nbytes for part in said or () if isinstance(part, np.ndarray))


def _hex(colour: np.ndarray) -> str:
    return "#" + "".join(f"{part:02x}" for part in colour.tolist())

"""Layers over a slide: the options of a request, the values of models and classifiers, and their colours."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from panther.aggregators import build
from panther.errors import InputError, check_choice
from panther.explain import palette
from panther.explain.attention import SCALES, attention, attention_titles
from panther.explain.attribution import attribute_bags, check_attributable
from panther.explain.attribution.draw import patch_values
from panther.explain.concordance import CONCORDANCE
from panther.explain.concordance.agreement import UNKNOWN, tissue_of
from panther.explain.concordance.tissue_classifier import load_classifier
from panther.explain.names import prototype_number
from panther.explain.palette import rgb_values
from panther.explain.scene import assign
from panther.explain.slide_map import DIVERGING, HEAT, heat_colours
from panther.mil import networks
from panther.models.model import load_model, read_about
from panther.storage.files import read_json
from panther.store import version_of
from panther.types import Openable
from panther.viewer.kept import Kept
from panther.viewer.patches import PatchMap
from panther.viewer.tiles.render import LEVELS, Colours
from panther.viewer.workbench import UnknownError, Workbench

STOPS = 9  # of a colour bar that is sent to the page
VALUES = 64 << 20  # bytes of the values of models
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
class LayerOptions:
    """Parameters of an overlay; equal ones give equal tiles."""

    set: str | None = None  # of prototypes
    model: str | None = None
    prototype: int = 0
    shown: frozenset[int] | None = None  # prototypes or classes that are isolated; None: all
    low: float | None = None  # patches of smaller values are left out
    high: float | None = None
    scale: str | None = None  # of attention: rank or linear
    output: str | None = None  # of the model

    def keeps(self, value_low: float, value_high: float) -> tuple[float, float]:
        """Range of the values that are shown; by default that of the scale."""
        return (
            value_low if self.low is None else self.low,
            value_high if self.high is None else self.high,
        )


def read_options(query: Mapping[str, str], count: int) -> LayerOptions:
    """Parameters of a query, for so many prototypes."""
    chosen = query.get("prototype")
    shown = query.get("shown")
    return LayerOptions(
        query.get("set") or None,
        query.get("model") or None,
        prototype_number(chosen, max(count, 1)) if chosen else 0,
        None if shown is None else frozenset(_whole(part) for part in shown.split(",") if part.strip()),
        number(query, "low"),
        number(query, "high"),
        query.get("scale") or None,
        query.get("output") or None,
    )


def number(query: Mapping[str, str], name: str) -> float | None:
    """A finite number of the query; None where it is not given."""
    text = query.get(name)
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"`{name}={text}`: a number is expected.")
    return value


def whole_number(query: Mapping[str, str], name: str, least: int, most: int) -> int | None:
    """A whole number of the query within limits; None where it is not given."""
    value = number(query, name)
    if value is not None and not (least <= value <= most and value == int(value)):
        raise InputError(f"`{name}={query[name]}`: a whole number from {least} to {most} is expected.")
    return None if value is None else int(value)


def _whole(text: str) -> int:
    text = text.strip().removeprefix("C")
    if not (text.isascii() and text.isdigit() and len(text) < 7):
        raise InputError(f"`shown=` holds {text!r}; numbers separated by commas are expected.")
    return int(text)


class Outputs(NamedTuple):
    """Numbers of every patch, for each output of a model."""

    titles: tuple[str, ...]  # K outputs
    values: np.ndarray  # (K, N)
    limits: tuple[float, ...]  # K, the largest there can be
    main: int  # the predicted one


class Classes(NamedTuple):
    """Tissue class of every prototype, or of every patch."""

    names: tuple[str, ...]
    labels: np.ndarray  # (C,) or (N,), -1 where there is none


def is_network(path: Path) -> bool:
    """Whether a model looks at patches by attention; else it has prototypes and a head."""
    return str(read_about(path)["method"]["name"]) in networks.names()


def attributed(features: Openable, path: Path) -> Outputs:
    """What each patch's prototype adds to the outputs of a model, weighted by the model's own posterior."""
    model = load_model(path)
    check_attributable(model)
    assert model.prototypes is not None
    attribution = attribute_bags(model, [features])
    if not attribution.samples:
        raise InputError(next(iter(attribution.failures.values())))
    bag = model.prototypes.prepared(features.open())
    shares = assign(bag, build(model.method.name, model.prototypes, model.method.options)).assignment.numpy()
    added = attribution.by_prototype()[0]  # (K, C)
    values = np.stack([patch_values(shares, one) for one in added]).astype(np.float32)
    limits = tuple(float(limit) for limit in np.abs(added).max(1))
    return Outputs(attribution.outputs, values, limits, int(attribution.values[0].argmax()))


def attended(features: Openable, path: Path) -> Outputs:
    """Attention that each patch received, one row for each output where the network has several."""
    model = load_model(path)
    looked = attention(features.open(), model)
    values = looked.weights.T
    many = len(values) > 1 and "probabilities" in looked.prediction
    main = int(looked.prediction["probabilities"][0].argmax()) if many else 0
    return Outputs(attention_titles(model, len(values)), values, tuple(float(limit) for limit in values.max(1)), main)


def classified(features: Openable, path: Path) -> Classes:
    """Class of every patch by a tissue classifier."""
    classifier = load_classifier(path)
    return Classes(tuple(classifier.classes), tissue_of(classifier.label(features.open())))


def agreed(folders: Sequence[Path], prototypes_hash: str, count: int) -> Classes | None:
    """Class of every prototype by the first `panther concordance` of these very prototypes; None where there is none."""
    for folder in folders:
        try:
            content = read_json(folder / CONCORDANCE)
            if content["prototypes_hash"] != prototypes_hash:
                continue
            names = tuple(str(one["class"]) for one in content["classes"])
            own = {int(one["prototype"]): one["class"] for one in content["prototypes"]}
            labels = [names.index(own[c]) if own.get(c) in names else UNKNOWN for c in range(count)]
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(
                f"{folder / CONCORDANCE}: cannot be read ({error}); run `panther concordance` again."
            ) from error
        return Classes(names, np.array(labels))
    return None


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


Paint = Callable[[PatchMap, LayerOptions], Painted | None]  # None: this slide has no such layer


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

    def paint(self, patch_map: PatchMap, layer: str, options: LayerOptions) -> Painted:
        """Colours of one layer; one that is not there is refused in a sentence."""
        if layer not in self._paints:
            raise UnknownError(f"There is no layer {layer!r}.")
        painted = None if patch_map.grid is None else self._paints[layer](patch_map, options)
        if painted is None:
            why = " ".join(patch_map.notes) or NEEDS[layer]
            raise UnknownError(f"{patch_map.slide}: the layer {layer!r} cannot be shown; {why}")
        return painted

    def available(self, patch_map: PatchMap, options: LayerOptions) -> tuple[list[Layer], list[str]]:
        """Layers that a slide has, and why others cannot be shown.

        What a model says takes time, so its limits are told only where the model was asked for.
        """
        layers: list[Layer] = []
        notes: list[str] = []
        for name in self._paints:
            try:
                layers.append(self._unread(name, options) or self.paint(patch_map, name, options).layer)
            except UnknownError:
                continue  # the notes of the patches say why
            except InputError as error:
                notes.append(str(error))
        return (layers if patch_map.grid is not None else []), notes

    def _unread(self, layer: str, options: LayerOptions) -> Layer | None:
        """A model's layer before its first use."""
        if layer not in OF_MODELS or options.model is not None or not self.bench.contents.models:
            return None
        if self._of_kind(layer) is None:
            raise UnknownError(NEEDS[layer])
        return Layer(layer, OF_MODELS[layer][0], "values", scale=OF_MODELS[layer][1])

    def _prototypes(self, patch_map: PatchMap, options: LayerOptions) -> Painted | None:
        """Prototype of every patch."""
        if patch_map.assignment is None:
            return None
        look = prototype_look(self.bench, options.set)
        layer = Layer("prototypes", "Prototypes", "categories", classes=tuple(look))
        return Painted(layer, of_classes(patch_map.labels, look, options.shown), patch_map.labels)

    def _posterior(self, patch_map: PatchMap, options: LayerOptions) -> Painted | None:
        """Share of one prototype in every patch."""
        if patch_map.assignment is None:
            return None
        title = prototype_look(self.bench, options.set)[options.prototype][0]
        layer = Layer("posterior", f"Posterior of {title}", "values", 0.0, 1.0, "share of the patch", HEAT)
        return of_values(layer, patch_map.assignment[:, options.prototype], options)

    def _attribution(self, patch_map: PatchMap, options: LayerOptions) -> Painted | None:
        """What each patch's prototype adds to a prediction: red adds, blue takes away."""
        outputs = self._said(attributed, "attribution", patch_map, options)
        if outputs is None:
            return None
        k = _chosen(outputs, options)
        limit = outputs.limits[k]
        title = f"What adds to {outputs.titles[k]}, or takes from it"
        layer = Layer("attribution", title, "values", -limit, limit, "contribution of the patch's prototype", DIVERGING)
        return of_values(replace(layer, outputs=outputs.titles, output=outputs.titles[k]), outputs.values[k], options)

    def _attention(self, patch_map: PatchMap, options: LayerOptions) -> Painted | None:
        """How much a network looked at each patch, by rank or in proportion."""
        check_choice("attention scale", options.scale or "rank", SCALES)
        outputs = self._said(attended, "attention", patch_map, options)
        if outputs is None:
            return None
        k, scale = _chosen(outputs, options), SCALES[options.scale or "rank"]
        layer = Layer(
            "attention", outputs.titles[k][:1].upper() + outputs.titles[k][1:], "values", 0.0, 1.0, scale.label, HEAT
        )
        values = scale.of(outputs.values[k][:, None])[:, 0]
        return of_values(replace(layer, outputs=outputs.titles, output=outputs.titles[k]), values, options)

    def _classes(self, patch_map: PatchMap, options: LayerOptions) -> Painted | None:
        """Tissue class of every patch: of a classifier where there is one, else of its prototype in a concordance."""
        contents, entry = self.bench.contents, self.bench.slide(patch_map.slide)
        classes = None
        if contents.classifiers and entry.features is not None:
            path = next(iter(contents.classifiers.values()))
            key = patch_map.identity, "classes"
            classes = self._values.get(
                key, lambda: self.bench.compute(classified, entry.features, path), version_of([path])
            )
            labels = _of_these(classes.labels, patch_map)
        elif patch_map.assignment is not None and contents.artefacts.get("concordance"):
            own, folders = self.bench.prototypes(options.set), contents.artefacts["concordance"]
            classes = self._values.get(
                ("agreed", options.set),
                lambda: self.bench.compute(agreed, folders, own.content_hash(), len(own)),
                version_of(folder / CONCORDANCE for folder in folders),
            )
            labels = patch_map.labels if classes is None else classes.labels[patch_map.labels]
        if classes is None:
            return None
        look = [(name, palette.colour(k)) for k, name in enumerate(classes.names)]
        layer = Layer("classes", "Tissue classes", "categories", classes=tuple(look))
        return Painted(layer, of_classes(labels, look, options.shown), labels)

    def _said(
        self, ask: Callable[..., Outputs], layer: str, patch_map: PatchMap, options: LayerOptions
    ) -> Outputs | None:
        """What a model says of the slide, kept; None where there is no such model."""
        entry, model = self.bench.slide(patch_map.slide), options.model or self._of_kind(layer)
        if model is None or entry.features is None:
            return None
        if model not in self.bench.contents.models:
            raise UnknownError(f"There is no model {model!r} here.")
        path = self.bench.contents.models[model]
        if self._is_network(model) != (layer == "attention"):
            return None
        outputs = self._values.get(
            (patch_map.identity, layer, model), lambda: self.bench.compute(ask, entry.features, path)
        )
        _of_these(outputs.values[0], patch_map)
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


def of_values(layer: Layer, values: np.ndarray, options: LayerOptions) -> Painted:
    """Colours of values (N,) on the layer's scale; those outside of the requested range are transparent."""
    assert layer.low is not None
    assert layer.high is not None
    low, high = options.keeps(layer.low, layer.high)
    width = layer.high - layer.low
    parts = (values - layer.low) / width if width > 0 else np.full(len(values), 0.5)
    scale = heat_colours(np.linspace(0, 1, LEVELS), layer.scale)
    return Painted(layer, Colours.of_values(parts, scale, (values >= low) & (values <= high)))


def prototype_look(bench: Workbench, prototypes: str | None) -> list[tuple[str, str]]:
    """Title and colour of each prototype, as people have named them."""
    return bench.look(prototypes)


def _chosen(outputs: Outputs, options: LayerOptions) -> int:
    """Requested output; the predicted one by default."""
    if options.output is None:
        return outputs.main
    if options.output not in outputs.titles:
        raise UnknownError(f"The model has no output {options.output!r}; it has {', '.join(outputs.titles)}.")
    return outputs.titles.index(options.output)


def _of_these(values: np.ndarray, patch_map: PatchMap) -> np.ndarray:
    """Values, if there is one for each patch of the map."""
    assert patch_map.grid is not None
    if len(values) != len(patch_map.grid.cells):
        raise InputError(
            f"{patch_map.slide}: its features have changed since they were opened; start the viewer again."
        )
    return values


def _bytes(said: Outputs | Classes | None) -> int:
    """Bytes of what is kept."""
    return 1024 + sum(part.nbytes for part in said or () if isinstance(part, np.ndarray))


def _hex(colour: np.ndarray) -> str:
    return "#" + "".join(f"{part:02x}" for part in colour.tolist())

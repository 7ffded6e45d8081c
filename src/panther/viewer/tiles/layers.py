"""Layers over a slide: the values of models and classifiers, and their colours."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from panther.aggregators import build
from panther.errors import InputError
from panther.explain.attention import SCALES, attention, attention_titles
from panther.explain.attribution import attribute_bags, check_attributable
from panther.explain.attribution.draw import patch_values
from panther.explain.concordance import CONCORDANCE
from panther.explain.concordance.agreement import UNKNOWN, tissue_of
from panther.explain.concordance.tissue_classifier import load_classifier
from panther.explain.names import class_colours
from panther.explain.palette import rgb_values
from panther.explain.scene import assign
from panther.explain.slide_map import DIVERGING, HEAT, heat_colours
from panther.mil import networks
from panther.models.model import load_model, read_about
from panther.storage.files import read_errors, read_json
from panther.store import version_of
from panther.types import Openable
from panther.viewer.patches import PatchMap
from panther.viewer.queries import LayerOptions
from panther.viewer.tiles.render import LEVELS, Colours
from panther.viewer.workbench import LruCache, UnknownError, Workbench, pick

STOPS = 9  # of a colour bar that is sent to the page
VALUES = 64 << 20  # bytes of the values of models
OF_MODELS = {
    "attribution": ("Attribution of the prediction", DIVERGING),
    "attention": ("Attention of the network", HEAT),
}


class Outputs(NamedTuple):
    """Numbers of every patch, for each output of a model."""

    titles: tuple[str, ...]  # K outputs
    values: np.ndarray  # (K, N)
    limits: tuple[float, ...]  # K, the largest possible absolute values
    main: int  # the predicted one


class Classes(NamedTuple):
    """Tissue class of every prototype, or of every patch."""

    names: tuple[str, ...]
    labels: np.ndarray  # (C,) or (N,), -1 where there is none


def compute_attribution(features: Openable, path: Path) -> Outputs:
    """Contribution of each patch's prototype to the outputs of a model, weighted by the posterior under the model."""
    model = load_model(path)
    check_attributable(model)
    assert model.prototypes is not None
    attribution = attribute_bags(model, [features])
    if not attribution.samples:
        raise InputError(next(iter(attribution.failures.values())))
    bag = model.prototypes.prepared(features.open())
    shares = assign(bag, build(model.method.name, model.prototypes, model.method.options)).assignment.numpy()
    added = attribution.by_prototype()[0]  # (K, C)
    values = np.stack([patch_values(shares, of_output) for of_output in added]).astype(np.float32)
    limits = tuple(np.abs(added).max(1).tolist())
    return Outputs(attribution.outputs, values, limits, int(attribution.values[0].argmax()))


def compute_attention(features: Openable, path: Path) -> Outputs:
    """Attention that each patch received, one row for each output where the network has several."""
    model = load_model(path)
    result = attention(features.open(), model)
    values = result.weights.T
    has_classes = len(values) > 1 and "probabilities" in result.prediction
    main = int(result.prediction["probabilities"][0].argmax()) if has_classes else 0
    return Outputs(attention_titles(model, len(values)), values, tuple(values.max(1).tolist()), main)


def classify_patches(features: Openable, path: Path) -> Classes:
    """Class of every patch by a tissue classifier."""
    classifier = load_classifier(path)
    return Classes(tuple(classifier.classes), tissue_of(classifier.label(features.open())))


def read_concordance(folders: Sequence[Path], prototypes_hash: str, count: int) -> Classes | None:
    """Class of every prototype by the first `panther concordance` of these prototypes; None without one."""
    for file in (folder / CONCORDANCE for folder in folders):
        with read_errors(file, "concordance", "run `panther concordance` again"):
            content = read_json(file)
            if content["prototypes_hash"] == prototypes_hash:
                names = tuple(str(row["class"]) for row in content["classes"])
                class_of = {int(row["prototype"]): row["class"] for row in content["prototypes"]}
                labels = [names.index(class_of[c]) if class_of.get(c) in names else UNKNOWN for c in range(count)]
                return Classes(names, np.array(labels))
    return None


@dataclass(frozen=True)
class Layer:
    """One overlay as the page lists it."""

    id: str
    title: str
    kind: str  # categories, values or lines
    low: float | None = None  # ends of the colour bar; None: not computed yet, or no values
    high: float | None = None
    unit: str | None = None
    scale: str = ""  # colour map of values
    classes: tuple[tuple[str, str], ...] = ()  # title and colour of each
    outputs: tuple[str, ...] = ()  # of a model, where one can be chosen
    output: str | None = None  # the one that is shown

    @property
    def limits(self) -> tuple[float, float]:
        """Ends of the colour bar of computed values."""
        assert self.low is not None
        assert self.high is not None
        return self.low, self.high

    def to_dict(self) -> dict[str, Any]:
        """Entry of the page's list."""
        entry = {name: getattr(self, name) for name in ("id", "title", "kind", "low", "high", "unit")}
        if self.kind == "values":
            colours = heat_colours(np.linspace(0, 1, STOPS), self.scale)
            entry["colours"] = [f"#{bytes(colour).hex()}" for colour in colours.tolist()]
        if self.classes:
            entry["classes"] = [{"id": k, "name": name, "colour": c} for k, (name, c) in enumerate(self.classes)]
        if self.outputs:
            entry |= {"outputs": self.outputs, "output": self.output}
        return entry


@dataclass(frozen=True, eq=False)
class Painted:
    """A layer with the colours of the patches, for tiles."""

    layer: Layer
    colours: Colours
    labels: np.ndarray | None = None  # (N,), class of each patch where there are classes


Paint = Callable[[PatchMap, LayerOptions], Painted | None]  # None: this slide has no such layer


class Layers:
    """Layers of one workbench; outputs of models are cached. Threads may share it."""

    def __init__(self, bench: Workbench) -> None:
        self.bench = bench
        self._values: LruCache[Any] = LruCache(VALUES, weigh=_bytes)
        self._paints: dict[str, Paint] = {
            "prototypes": self._prototypes,
            "posterior": self._posterior,
            "attribution": self._attribution,
            "attention": self._attention,
            "classes": self._classes,
        }

    def paint(self, patch_map: PatchMap, layer: str, options: LayerOptions) -> Painted:
        """Colours of one layer; unknown layers are refused."""
        paint = pick(self._paints, layer, "layer")
        painted = None if patch_map.grid is None else paint(patch_map, options)
        if painted is None:
            raise UnknownError(" ".join((f"{patch_map.slide}: no layer {layer!r}.", *patch_map.notes)))
        return painted

    def available(self, patch_map: PatchMap, options: LayerOptions) -> tuple[list[Layer], list[str]]:
        """Layers of a slide, and why others cannot be shown.

        Outputs of a model take time, so they are computed only if the model was chosen.
        """
        layers: list[Layer] = []
        notes: list[str] = []
        for name in self._paints if patch_map.grid is not None else ():
            try:
                if name in OF_MODELS and options.model is None and self.bench.contents.models:
                    if self._of_kind(name) is not None:
                        layers.append(Layer(name, OF_MODELS[name][0], "values", scale=OF_MODELS[name][1]))
                else:
                    layers.append(self.paint(patch_map, name, options).layer)
            except UnknownError:
                continue  # the notes of the patches say why
            except InputError as error:
                notes.append(str(error))
        return layers, notes

    def _prototypes(self, patch_map: PatchMap, options: LayerOptions) -> Painted | None:
        """Prototype of every patch."""
        if patch_map.assignment is None:
            return None
        layer = Layer("prototypes", "Prototypes", "categories", classes=tuple(self.bench.legend(options.set)))
        return of_classes(layer, patch_map.labels, options)

    def _posterior(self, patch_map: PatchMap, options: LayerOptions) -> Painted | None:
        """Posterior of one prototype in every patch."""
        if patch_map.assignment is None:
            return None
        title, _colour = self.bench.legend(options.set)[options.prototype]
        layer = Layer("posterior", f"Posterior of {title}", "values", 0.0, 1.0, "share of the patch", HEAT)
        return of_values(layer, patch_map.assignment[:, options.prototype], options)

    def _attribution(self, patch_map: PatchMap, options: LayerOptions) -> Painted | None:
        """Contribution of each patch's prototype to a prediction: red adds, blue subtracts."""
        outputs, k = self._outputs(compute_attribution, "attribution", patch_map, options)
        if outputs is None:
            return None
        title, limit = outputs.titles[k], outputs.limits[k]
        unit = "contribution of the patch's prototype"
        layer = Layer("attribution", f"Contribution to {title}", "values", -limit, limit, unit, DIVERGING)
        return of_values(replace(layer, outputs=outputs.titles, output=title), outputs.values[k], options)

    def _attention(self, patch_map: PatchMap, options: LayerOptions) -> Painted | None:
        """Attention of a network to each patch, by rank or in proportion."""
        outputs, k = self._outputs(compute_attention, "attention", patch_map, options)
        if outputs is None:
            return None
        title, scale = outputs.titles[k], SCALES[options.scale]
        layer = Layer("attention", title[:1].upper() + title[1:], "values", 0.0, 1.0, scale.label, HEAT)
        values = scale.of(outputs.values[k][:, None])[:, 0]
        return of_values(replace(layer, outputs=outputs.titles, output=title), values, options)

    def _classes(self, patch_map: PatchMap, options: LayerOptions) -> Painted | None:
        """Tissue class of every patch: of a classifier if there is one, else of its prototype in a concordance."""
        contents, entry = self.bench.contents, self.bench.slide(patch_map.slide)
        if contents.classifiers and entry.features is not None:
            path = next(iter(contents.classifiers.values()))
            classify = partial(self.bench.compute, classify_patches, entry.features, path)
            classes = self._values.get((patch_map.identity, "classes"), classify, version_of([path]))
            labels = _matching(classes.labels, patch_map)
        elif patch_map.assignment is not None and (folders := contents.artefacts.get("concordance")):
            prototypes = self.bench.prototypes(options.set)
            agree = partial(self.bench.compute, read_concordance, folders, prototypes.content_hash(), len(prototypes))
            version = version_of(folder / CONCORDANCE for folder in folders)
            classes = self._values.get(("agreed", options.set), agree, version)
            if classes is None:
                return None
            labels = classes.labels[patch_map.labels]
        else:
            return None
        legend = tuple(zip(classes.names, self._class_colours(classes.names, options.set), strict=True))
        return of_classes(Layer("classes", "Tissue classes", "categories", classes=legend), labels, options)

    def _class_colours(self, names: Sequence[str], chosen: str | None) -> list[str]:
        """Colours of tissue classes: a class has the colour of the prototypes of its name."""
        if not self.bench.contents.prototypes or not self.bench.has_names(chosen):
            return class_colours(names, {}, 0)
        return class_colours(names, self.bench.names().state().namings, len(self.bench.prototypes(chosen)))

    def _outputs(
        self, compute: Callable[..., Outputs], layer: str, patch_map: PatchMap, options: LayerOptions
    ) -> tuple[Outputs | None, int]:
        """Outputs of a model for the slide, and the requested one (by default the predicted one); None without such a model."""
        entry, model = self.bench.slide(patch_map.slide), options.model or self._of_kind(layer)
        if model is None or entry.features is None:
            return None, 0
        path = pick(self.bench.contents.models, model, "model")
        if not self._has_layer(model, layer):
            return None, 0
        read = partial(self.bench.compute, compute, entry.features, path)
        outputs: Outputs = self._values.get((patch_map.identity, layer, model), read)
        _matching(outputs.values[0], patch_map)
        if options.output is None:
            return outputs, outputs.main
        return outputs, outputs.titles.index(pick(outputs.titles, options.output, "output"))

    def _of_kind(self, layer: str) -> str | None:
        """First model that has this layer; one that cannot be read has none."""
        for name in self.bench.contents.models:
            with suppress(InputError):
                if self._has_layer(name, layer):
                    return name
        return None

    def _has_layer(self, model: str, layer: str) -> bool:
        """Whether a model has this layer: networks have attention, heads on prototypes attribution."""
        is_network = str(read_about(self.bench.contents.models[model])["method"]["name"]) in networks.names()
        return is_network == (layer == "attention")


def of_classes(layer: Layer, labels: np.ndarray, options: LayerOptions) -> Painted:
    """Colours of labels (N,); where some are isolated the others are transparent, and so are patches without one (-1)."""
    shown = labels >= 0 if options.shown is None else np.isin(labels, list(options.shown)) & (labels >= 0)
    colours = Colours.of_classes(labels, rgb_values([colour for _, colour in layer.classes]), shown)
    return Painted(layer, colours, labels)


def of_values(layer: Layer, values: np.ndarray, options: LayerOptions) -> Painted:
    """Colours of values (N,) on the layer's scale; those outside of the requested range are transparent."""
    (start, end), (low, high) = layer.limits, options.shown_range(layer.limits)
    parts = (values - start) / (end - start) if end > start else np.full(len(values), 0.5)
    scale = heat_colours(np.linspace(0, 1, LEVELS), layer.scale)
    zero = 0.5 if layer.scale == DIVERGING else 0.0
    return Painted(layer, Colours.of_values(parts, scale, (values >= low) & (values <= high), zero))


def _matching(values: np.ndarray, patch_map: PatchMap) -> np.ndarray:
    """Values, if there is one for each patch of the map."""
    assert patch_map.grid is not None
    if len(values) != len(patch_map.grid.cells):
        raise InputError(f"{patch_map.slide}: its features have changed since they were opened; start the viewer again")
    return values


def _bytes(values: Outputs | Classes | None) -> int:
    return 1024 + sum(part.nbytes for part in values or () if isinstance(part, np.ndarray))

"""What models and classifiers say of every patch of a slide; these functions run in worker processes."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from panther.aggregators import build
from panther.errors import InputError
from panther.explain.assign import assign
from panther.explain.attention import attention, attention_titles
from panther.explain.attribution.draw import patch_values
from panther.explain.attribution.model import AttributionSettings, attribute_bags, check_attributable
from panther.explain.concordance.agreement import UNKNOWN, tissue_of
from panther.explain.concordance.tissue_classifier import load_classifier
from panther.explain.concordance.write import CONCORDANCE
from panther.mil import networks
from panther.models.model_file import load_model, read_about
from panther.storage.files import read_json
from panther.types import Openable


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
    found = attribute_bags(model, [features], AttributionSettings())
    if not found.samples:
        raise InputError(next(iter(found.failures.values())))
    bag = model.prototypes.prepared(features.open())
    shares = assign(bag, build(model.method.name, model.prototypes, model.method.options)).assignment.numpy()
    added = found.by_prototype()[0]  # (K, C)
    values = np.stack([patch_values(shares, one) for one in added]).astype(np.float32)
    limits = tuple(float(limit) for limit in np.abs(added).max(1))
    return Outputs(found.outputs, values, limits, int(found.values[0].argmax()))


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

"""What is done in worker processes, where a damaged file costs one request."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from panther.errors import InputError
from panther.explain.projection import Plane, principal_components, umap
from panther.explain.shares import pooled
from panther.models.model import load_model, read_about
from panther.models.predict import predict_bags
from panther.models.tasks import tasks
from panther.storage.embeddings import read_vectors, read_weights
from panther.viewer.contents import SlideEntry

RISK, VALUE = "risk", "value"
PLANES = {"pca": principal_components, "umap": umap}


class Share(NamedTuple):
    """How much of each prototype a slide has."""

    pi: np.ndarray  # (C,)
    patches: float


class EmbeddingsFile(NamedTuple):
    """What a file of embeddings holds, without its vectors."""

    samples: list[str]  # with finite vectors
    damaged: list[str]  # with NaN or infinity
    prototypes_hash: str | None
    shares: dict[str, Share]  # empty where the file has no pi


def read_embeddings(path: Path) -> EmbeddingsFile:
    """Samples, and their pi where the method keeps it."""
    everybody, vectors, made_with = read_vectors(path)
    sound = [bool(np.isfinite(vector).all()) for vector in vectors]  # one by one: a copy of all may be gigabytes
    samples, damaged = ([n for n, is_sound in zip(everybody, sound, strict=True) if is_sound is kind] for kind in (True, False))  # fmt: skip
    try:
        named, pi, columns = read_weights(path, "n_patches")
    except InputError:
        return EmbeddingsFile(samples, damaged, made_with, {})
    patches = [float(value) for value in columns["n_patches"]]
    rows = zip(named, pi.astype(np.float64), patches, strict=True)
    return EmbeddingsFile(samples, damaged, made_with, {name: Share(row, n) for name, row, n in rows if n > 0})


def slide_predictions(entries: Sequence[SlideEntry], model: Path) -> tuple[dict[str, dict[str, float]], dict[str, str]]:
    """Outputs of a model for slides, by their names: probabilities of classes or labels, the risk, or the value."""
    refs = [entry.features for entry in entries if entry.features is not None]
    loaded = load_model(model)
    samples, predictions, failures = predict_bags(loaded, refs)
    names, values = loaded.task.output_names, loaded.task.numbers(predictions)
    return {
        sample: dict(zip(names, map(float, row), strict=True)) for sample, row in zip(samples, values, strict=True)
    }, dict(failures)


class AboutModel(NamedTuple):
    """What a model says of a slide, and whom it was trained on."""

    outputs: list[str]  # its classes or labels, the risk, or the value
    trained_on: frozenset[str]  # slides or patients
    exclusive: bool  # of two outputs one says it all


def about_model(model: Path) -> AboutModel:
    """Read the head of the model file; its weights stay where they are."""
    about = read_about(model)
    loss = about["task"].get("loss")
    kind = tasks[loss].kind if loss in tasks else "classification"
    names = about["task"].get("names") or [VALUE if kind == "regression" else RISK]
    trained_on = frozenset(map(str, about["about"].get("samples") or ()))
    return AboutModel([str(name) for name in names], trained_on, kind == "classification")


def plane_of_file(path: Path, slides: Sequence[Sequence[str]], patches: Mapping[str, float], method: str) -> Plane:
    """Plane of the embeddings of units, which are means of their slides' embeddings, weighted by patches."""
    samples, vectors, _ = read_vectors(path)
    row = {sample: number for number, sample in enumerate(samples)}
    if all(len(own) == 1 for own in slides):
        return plane(vectors[[row[own[0]] for own in slides]], method)
    rows = [[row[name] for name in own] for own in slides]
    counts = [np.array([patches.get(name, 1.0) for name in own]) for own in slides]
    return plane(np.stack([pooled(vectors[r], n) for r, n in zip(rows, counts, strict=True)]), method)


def plane(x: np.ndarray, method: str) -> Plane:
    """Positions (n, 2) of x (n, D)."""
    return PLANES[method](x)

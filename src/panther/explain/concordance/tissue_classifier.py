r"""A tissue classifier: multinomial logistic regression on an encoder's features, so that patches and prototypes get tissue classes.

.. math:: p(k \mid z) = \mathrm{softmax}_k \left( W^T \frac{z - m}{s} + b \right)
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from panther.errors import InputError, not_finite
from panther.evaluation.metrics import classification_metrics, confusion
from panther.explain.concordance.tiles import LabelledTiles, encode_images, find_images, holds_features, read_features
from panther.models.probes import fit_logistic, inner_folds
from panther.models.scaling import Scaler, moments
from panther.patches import encoder_words, same_encoder
from panther.statistics import first_bad_row
from panther.storage.tensors import TensorFileError, read_tensors, write_tensors
from panther.store import check_output
from panther.types import Bag, Prototypes, Rows
from panther.version import __version__

if TYPE_CHECKING:
    from panther.encoders.pipeline import ExtractSettings

STRENGTHS = (10.0, 1.0, 0.1, 0.01, 0.001)  # of the penalty; on labelled tiles stronger ones never won
INNER_FOLDS = 3  # to choose among them
FLOOR = 1e-2  # of the mean variance: a feature that tiles hardly use must not explode on a slide that does
ROWS = 8192  # labelled at a time
FORMAT = 1  # raised when a reader of the old format would misread the new one
_KEY = "panther_tissue_classifier"
_ABOUT = ("encoder", "settings", "evaluation", "parents", "version")
TRAIN = "train one with `panther tissue-classifier`"


@dataclass(frozen=True)
class ClassifierSettings:
    """How a tissue classifier is fitted."""

    per_class: int = 500  # tiles of each class at most, drawn at random
    folds: int = 5  # of the cross-validation that judges it
    seed: int = 0

    def __post_init__(self) -> None:
        if self.folds < 2 or self.per_class < 2:
            raise InputError(f"`folds={self.folds}` and `per_class={self.per_class}` must be at least 2.")


@dataclass(frozen=True)
class TissueClassifier:
    """A fitted classifier and how far it can be trusted."""

    weight: Tensor  # (d, K) float32, of standardised features
    bias: Tensor  # (K,)
    scaler: Scaler  # (d,) mean and deviation of the training tiles
    classes: tuple[str, ...]
    encoder: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    evaluation: Mapping[str, Any] = field(default_factory=dict)  # cross-validated
    parents: str = ""  # hash of the training features and labels
    version: str = ""
    file: str | None = None  # name of the file it was read from

    @property
    def dim(self) -> int:
        """Number of features d."""
        return int(self.weight.shape[0])

    def content_hash(self) -> str:
        """Hash of what a label depends on."""
        digest = hashlib.blake2b("\n".join(self.classes).encode(), digest_size=16)
        for tensor in (self.weight, self.bias, self.scaler.shift, self.scaler.scale):
            digest.update(tensor.contiguous().numpy().tobytes())
        return digest.hexdigest()

    def probabilities(self, rows: Rows) -> Tensor:
        """Probabilities (N, K) of features (N, d), read block by block."""
        blocks = [rows[start : start + ROWS] for start in range(0, int(rows.shape[0]), ROWS)]
        parts = [(self.scaler(x) @ self.weight + self.bias).double().softmax(-1).float() for x in blocks]
        return torch.cat(parts) if parts else torch.empty(0, len(self.classes))

    def label(self, bag: Bag) -> np.ndarray:
        """Probabilities (N, K) of a bag's patches; a bag of another encoder, or with NaN, is refused."""
        self._check(bag.source, bag.dim, bag.encoder)
        found = self.probabilities(bag.features)
        if not bool(torch.isfinite(found).all()):
            raise not_finite(bag.source, first_bad_row(bag.features) or 0)
        return found.numpy()

    def label_prototypes(self, prototypes: Prototypes) -> np.ndarray | None:
        """Classes (C,) of the centroids; those of PCA are brought back to the features, none for normalised features."""
        self._check("The prototypes", prototypes.dim_in, prototypes.encoder)
        projection = prototypes.projection
        if projection.normalise:
            return None
        centroids = prototypes.centroids.float()
        if projection.basis is not None and projection.mean is not None:
            centroids = centroids @ projection.basis.float().T + projection.mean.float()
        with torch.no_grad():
            return self.probabilities(centroids).numpy().argmax(1)

    def to_dict(self) -> dict[str, Any]:
        """What it is, as plain values."""
        about = {"file": self.file, "hash": self.content_hash(), "encoder": self.encoder}
        return {"kind": "tissue classifier", **about, "evaluation": dict(self.evaluation)}

    def _check(self, source: str, dim: int, encoder: str | None) -> None:
        """Refuse features, or prototypes, of another encoder or dimension."""
        if dim != self.dim or not same_encoder(encoder, self.encoder):
            raise InputError(
                f"{source}: {dim} features of {encoder_words(encoder)}, but the tissue classifier was trained on {self.dim} of "
                f"{encoder_words(self.encoder)}; train one on features of the same encoder."
            )


def fit_classifier(tiles: LabelledTiles, settings: ClassifierSettings | None = None) -> TissueClassifier:
    """Fit a classifier on labelled tiles and judge it by cross-validation; its penalty is chosen inside every training part."""
    settings = settings or ClassifierSettings()
    smallest = min(np.bincount(tiles.labels, minlength=len(tiles.classes)).tolist())
    if smallest < 2:
        raise InputError(f"{tiles.source}: a class has {smallest} tile; cross-validation needs at least 2 of each.")
    scaler, weight, bias, strength = _fit(tiles, np.arange(len(tiles.labels)), settings.seed)
    digest = hashlib.blake2b(tiles.features.tobytes() + tiles.labels.tobytes(), digest_size=16)
    return TissueClassifier(
        weight,
        bias,
        scaler,
        tiles.classes,
        tiles.encoder,
        {"per_class": settings.per_class, "folds": settings.folds, "seed": settings.seed, "strength": strength},
        cross_validate(tiles, settings),
        digest.hexdigest(),
        __version__,
    )


def cross_validate(tiles: LabelledTiles, settings: ClassifierSettings) -> dict[str, Any]:
    """Metrics on tiles that the fit has not seen; tiles of one slide stay together where the slide is known."""
    every, count = np.arange(len(tiles.labels)), len(tiles.classes)
    probabilities = np.empty((len(every), count))
    parts = inner_folds(tiles.labels, settings.folds, tiles.groups, settings.seed)
    for part in parts:
        scaler, weight, bias, _ = _fit(tiles, np.setdiff1d(every, part), settings.seed)
        rows = torch.as_tensor(tiles.features[part])
        probabilities[part] = (scaler(rows) @ weight + bias).double().softmax(-1).numpy()
    table = confusion(tiles.labels, probabilities.argmax(1), count)
    numbers = classification_metrics(tiles.labels, probabilities)
    return {
        **{name: float(numbers[name]) for name in ("accuracy", "balanced_accuracy", "auroc")},
        "recall": dict(zip(tiles.classes, _ratios(np.diag(table), table.sum(1)), strict=True)),
        "precision": dict(zip(tiles.classes, _ratios(np.diag(table), table.sum(0)), strict=True)),
        "confusion": table.tolist(),  # rows are the truth
        "tiles": dict(zip(tiles.classes, table.sum(1).tolist(), strict=True)),
        "folds": len(parts),
        "slides_kept_together": tiles.groups is not None,
    }


def save_classifier(classifier: TissueClassifier, path: Path) -> None:
    """Write one .safetensors with weights, classes, settings and metrics; the same classifier gives the same bytes."""
    tensors = {"weight": classifier.weight, "bias": classifier.bias, **classifier.scaler.state()}
    about = {name: getattr(classifier, name) for name in _ABOUT}
    about |= {"format": FORMAT, "classes": list(classifier.classes), "hash": classifier.content_hash()}
    write_tensors(path, tensors, _KEY, about)


def is_classifier(path: Path) -> bool:
    """Whether a .safetensors file says that it is a tissue classifier; its weights are not read."""
    try:
        return read_tensors(path, _KEY, with_tensors=False)[0] is not None
    except TensorFileError:
        return False


def load_classifier(path: Path | str) -> TissueClassifier:
    """Read a classifier; any other file, or one that was changed, is refused."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: there is no such tissue classifier; {TRAIN}.")
    try:
        text, tensors = read_tensors(path, _KEY)
    except TensorFileError as error:
        raise InputError(f"{path}: not a tissue classifier, or damaged ({error}); {TRAIN}.") from error
    if text is None:
        raise InputError(f"{path}: a safetensors file, but not a tissue classifier; {TRAIN}.")
    about = json.loads(text)
    if about["format"] > FORMAT:
        raise InputError(f"{path}: written by a newer panther-wsi ({about['version']}); update this one.")
    weight, bias, shift, scale = (tensors[name] for name in ("weight", "bias", "shift", "scale"))
    known = {name: about[name] for name in _ABOUT}
    found = TissueClassifier(weight, bias, Scaler(shift, scale), tuple(about["classes"]), **known, file=path.name)
    if found.content_hash() != about["hash"] or not bool(torch.isfinite(weight).all()):
        raise InputError(f"{path}: the weights do not fit their hash, the file is damaged; {TRAIN}.")
    return found


def _fit(tiles: LabelledTiles, rows: np.ndarray, seed: int) -> tuple[Scaler, Tensor, Tensor, float]:
    """Scaler, weight (d, K), bias (K,) and the chosen penalty from these rows alone."""
    x = tiles.features[rows]
    mean, variance = moments(x)
    deviation = variance.clamp_min(FLOOR * float(variance.mean())).sqrt()
    scaler = Scaler(mean.float(), torch.where(deviation > 0, deviation, 1.0).float())
    groups = None if tiles.groups is None else tiles.groups[rows]
    how: dict[str, Any] = {"strengths": STRENGTHS, "folds": INNER_FOLDS, "groups": groups, "seed": seed}
    try:
        found = fit_logistic(scaler(torch.as_tensor(x)).numpy(), tiles.labels[rows], len(tiles.classes), **how)
    except InputError as error:
        raise InputError(f"{tiles.source}: {error}") from error
    return scaler, torch.as_tensor(found.weight).float(), torch.as_tensor(found.bias).float(), found.strength


def _ratios(part: np.ndarray, whole: np.ndarray) -> list[float | None]:
    """Quotients; None where there is nothing to divide by, which JSON can say."""
    return [float(p / w) if w else None for p, w in zip(part, whole, strict=True)]


def train_tissue_classifier(
    tiles: Path | str,
    output: Path | str,
    settings: ClassifierSettings | None = None,
    *,
    encoder: str | None = None,
    extract: "ExtractSettings | None" = None,
    **loading: Any,
) -> tuple[TissueClassifier, dict[str, str]]:
    """Train a classifier of tissue on labelled tiles and write it; also returns a sentence for each image that cannot be decoded.

    Parameters
    ----------
    tiles : path
        Folder with a sub-folder of tile images (or of feature files) per class, or one feature file per class.
    output : path
        File to write.
    settings : ClassifierSettings, optional
        Tiles per class, folds of the cross-validation, seed.
    encoder : str, optional
        Encoder of the slides' features; lite0 for images.
    extract, **loading
        Batches and workers, and the weights, device and precision of the encoder (see `panther.encoders.load_encoder`), for images.
    """
    tiles, output = Path(tiles), Path(output)
    settings = settings or ClassifierSettings()
    check_output(output, tiles, tiles.rglob("*"), loading.get("weights"))
    failures: dict[str, str] = {}
    if holds_features(tiles):
        labelled = _features(tiles, settings, encoder)
    else:
        from panther.encoders import load_encoder
        from panther.encoders.pipeline import Pipeline

        images = find_images(tiles, settings.per_class, settings.seed)  # refuses before anything is loaded
        with Pipeline(load_encoder(encoder or "lite0", **loading), extract) as pipeline:
            labelled, failures = encode_images(tiles, images, pipeline)
    classifier = fit_classifier(labelled, settings)
    save_classifier(classifier, output)
    return classifier, failures


def _features(tiles: Path, settings: ClassifierSettings, encoder: str | None) -> LabelledTiles:
    labelled = read_features(tiles, settings.per_class, settings.seed)
    if not same_encoder(encoder, labelled.encoder):
        raise InputError(
            f"{tiles}: the features are of {labelled.encoder!r}, not of {encoder!r}; leave `encoder=` out."
        )
    return replace(labelled, encoder=labelled.encoder or encoder)

r"""Tissue classes of patches: by a classifier trained on labelled tiles, or by a table of labels.

The classifier is a multinomial logistic regression on an encoder's features.

.. math:: p(k \mid z) = \mathrm{softmax}_k \left( W^T \frac{z - m}{s} + b \right)
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from panther.errors import InputError, error_context, listed, not_finite
from panther.evaluation.metrics import classification_metrics, confusion
from panther.explain.concordance.agreement import UNKNOWN, format_number, ratio
from panther.models.probes import fit_logistic, inner_folds
from panther.models.scaling import Scaler, moments
from panther.patches import encoder_words, same_encoder
from panther.statistics import first_bad_row
from panther.storage.bags import AS_WRITTEN, Reading, concatenate, list_bags
from panther.storage.clinical import SLIDE_COLUMNS, find_column
from panther.storage.files import read_errors
from panther.storage.names import without_suffix
from panther.storage.tables import as_table, source_of
from panther.storage.tensors import read_tensors, write_tensors
from panther.storage.trident import tile_names
from panther.types import Bag, Openable, Rows
from panther.version import __version__

if TYPE_CHECKING:
    import pandas as pd

STRENGTHS = (10.0, 1.0, 0.1, 0.01, 0.001)  # of the penalty; on labelled tiles stronger ones never won
INNER_FOLDS = 3  # to choose among them
FLOOR = 1e-2  # of the mean variance: a feature that tiles hardly use must not explode on a slide that does
ROWS = 8192  # labelled at a time
FORMAT = 1  # raised when a reader of the old format would misread the new one
EXPECTED = "expected a feature file, or a folder of them, for each class"
_KEY = "panther_tissue_classifier"
_ABOUT = ("encoder", "settings", "evaluation", "parents", "version")


@dataclass(frozen=True, eq=False)
class PatchLabels:
    """Labels by slide and upper left corner."""

    classes: tuple[str, ...]
    tables: "Mapping[str, pd.DataFrame]" = field(repr=False)  # of each slide: x, y, label
    source: str

    def label(self, bag: Bag) -> np.ndarray:
        """Probabilities (N, K): one for the class of a labelled patch, zero for others; rows of NaN for patches without a label."""
        import pandas as pd

        if bag.places is None:
            raise InputError(f"{bag.source}: no coordinates, by which labels are matched, expected a classifier")
        labels = self.tables.get(bag.slide_id)
        if labels is None:
            raise InputError(f"{self.source}: no row is of the slide {bag.slide_id}")
        corners = pd.DataFrame(np.round(bag.places().double().numpy()).astype(np.int64), columns=["x", "y"])
        tissue = pd.Categorical(corners.merge(labels, "left")["label"], self.classes).codes  # UNKNOWN without a label
        if (tissue == UNKNOWN).all():
            label, corner = (tuple(table[["x", "y"]].iloc[0].tolist()) for table in (labels, corners))
            raise InputError(
                f"{self.source}: none of the {len(labels)} labels of {bag.slide_id} lies on a patch, e.g. {label}, "
                f"expected upper left corners as in {bag.source}, e.g. {corner}"
            )
        rows = np.eye(len(self.classes), dtype=np.float32)[tissue]
        rows[tissue == UNKNOWN] = np.nan
        return rows

    def to_dict(self) -> dict[str, Any]:
        """Origin of the labels as plain values."""
        return {"kind": "labels", "file": Path(self.source).name, "labels": sum(map(len, self.tables.values()))}


def read_labels(table: "Path | str | pd.DataFrame") -> PatchLabels:
    """Read a table with the columns slide_id, x, y (upper left corner) and label; a patch with two labels is refused."""
    import pandas as pd

    rows = as_table(table)
    source = source_of(rows)
    slide = find_column(rows, None, SLIDE_COLUMNS, "slide")
    if slide is None or not {"x", "y", "label"} <= set(rows.columns):
        raise InputError(f"{source}: found the columns {listed(rows.columns)}, expected slide_id, x, y and label")
    labels = rows[["x", "y"]].apply(pd.to_numeric, errors="coerce").round()
    labels = labels.assign(slide=rows[slide].map(without_suffix), label=rows["label"].str.strip())
    bad = labels[["x", "y"]].isna().any(axis=1) | (labels["label"] == "")
    if bad.any():  # counting the header, as a spreadsheet does
        raise InputError(f"{source}: line {int(bad.to_numpy().argmax()) + 2} lacks a number in x or y, or a label")
    classes = tuple(sorted(labels["label"].unique()))
    if len(classes) < 2:
        raise InputError(f"{source}: found the label {classes[0]!r} only, expected at least two classes")
    labels = labels.astype({"x": int, "y": int}).drop_duplicates()
    second = labels[labels.duplicated(["slide", "x", "y"])]
    if len(second):
        x, y, name = second.iloc[0][["x", "y", "slide"]]
        raise InputError(f"{source}: the patch ({x}, {y}) of {name} has two labels")
    return PatchLabels(classes, dict(list(labels.groupby("slide"))), source)


@dataclass(frozen=True)
class LabelledTiles:
    """Features of tiles and their tissue classes."""

    features: np.ndarray  # (n, d) float32
    labels: np.ndarray  # (n,) int64
    classes: tuple[str, ...]
    source: str = "tiles"  # for messages
    encoder: str | None = None
    groups: np.ndarray | None = None  # (n,) slide of each tile, where it is known


def read_features(folder: Path, per_class: int, seed: int, reading: Reading = AS_WRITTEN) -> LabelledTiles:
    """Features of at most ``per_class`` labelled tiles of each class, drawn at random: `CLASS.h5`, or `CLASS/*.h5` (one file per slide)."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder, {EXPECTED}")
    folders = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    refs: dict[str, Sequence[Openable]] = {path.name: list_bags(path, reading=reading).refs for path in folders}
    refs = refs or {ref.sample: (ref,) for ref in list_bags(folder, reading=reading).refs}
    classes = tuple(refs)
    if len(classes) < 2:
        raise InputError(f"{folder}: found the class {classes[0]} alone, {EXPECTED}")
    files = [(k, ref, ref.open()) for k, name in enumerate(classes) for ref in refs[name]]
    whole = concatenate(str(folder), [bag for *_, bag in files])
    labels = np.repeat([k for k, *_ in files], [len(bag) for *_, bag in files])
    rng, drawn = np.random.default_rng(seed), []
    for k, name in enumerate(classes):
        members = np.flatnonzero(labels == k)
        if not len(members):
            raise InputError(f"{folder}: the class {name!r} has no patches")
        few = len(members) <= per_class
        drawn.append(members if few else members[np.sort(rng.choice(len(members), per_class, replace=False))])
    rows = np.concatenate(drawn)
    slides = [_slides_of_tiles(ref.files[0], len(bag)) for _, ref, bag in files]
    groups = None
    if all(slides) or len(files) > len(classes):  # else one file per class, of unknown slides
        names = [known or [ref.sample] * len(bag) for known, (_, ref, bag) in zip(slides, files, strict=True)]
        groups = np.concatenate(names)[rows]
    features = whole.features[: len(whole)].float().numpy()[rows]
    return LabelledTiles(features, labels[rows], classes, str(folder), whole.encoder, groups)


def _slides_of_tiles(file: Path, count: int) -> list[str]:
    """Slide of each tile where the file has their names (SLIDE/TILE), else nothing."""
    tiles = tile_names(file)
    return [tile.rpartition("/")[0] for tile in tiles] if len(tiles) == count and all("/" in t for t in tiles) else []


@dataclass(frozen=True)
class TissueClassifier:
    """A fitted classifier and its cross-validated scores."""

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
        """Hash of the classes, weights and scaling."""
        tensors = (self.weight, self.bias, self.scaler.shift, self.scaler.scale)
        contents = [tensor.contiguous().numpy().tobytes() for tensor in tensors]
        return hashlib.blake2b(b"".join(["\n".join(self.classes).encode(), *contents]), digest_size=16).hexdigest()

    def probabilities(self, rows: Rows) -> Tensor:
        """Probabilities (N, K) of features (N, d), read block by block."""
        blocks = [rows[start : start + ROWS] for start in range(0, int(rows.shape[0]), ROWS)]
        parts = [(self.scaler(x) @ self.weight + self.bias).double().softmax(-1).float() for x in blocks]
        return torch.cat(parts) if parts else torch.empty(0, len(self.classes))

    def label(self, bag: Bag) -> np.ndarray:
        """Probabilities (N, K) of a bag's patches; a bag of another encoder, or with NaN, is refused."""
        self.check(bag.source, bag.dim, bag.encoder)
        probabilities = self.probabilities(bag.features)
        if not bool(torch.isfinite(probabilities).all()):
            raise not_finite(bag.source, first_bad_row(bag.features) or 0)
        return probabilities.numpy()

    def check(self, source: str, dim: int, encoder: str | None) -> None:
        """Refuse features, or prototypes, of another encoder or dimension."""
        if dim != self.dim or not same_encoder(encoder, self.encoder):
            raise InputError(
                f"{source}: {dim} features of {encoder_words(encoder)}, but the tissue classifier was trained on {self.dim} of "
                f"{encoder_words(self.encoder)}"
            )

    def to_dict(self) -> dict[str, Any]:
        """Origin of the labels as plain values."""
        about = {"file": self.file, "hash": self.content_hash(), "encoder": self.encoder}
        return {"kind": "tissue classifier", **about, "evaluation": dict(self.evaluation)}

    def to_lines(self) -> list[str]:
        """Cross-validated scores, class by class."""
        scores, size = self.evaluation, max(5, *map(len, self.classes))
        together = ", slides kept together" if scores["slides_kept_together"] else ""
        lines = [
            f"{sum(scores['tiles'].values())} tiles of {len(self.classes)} classes (encoder {self.encoder})",
            f"{scores['folds']}-fold cross-validation{together}: accuracy {scores['accuracy']:.3f}, AUROC {scores['auroc']:.3f}",
            f"  {'class':<{size}} tiles recall precision  taken for",
        ]
        for name, counts in zip(self.classes, scores["confusion"], strict=True):
            mistakes = [(-n, other) for other, n in zip(self.classes, counts, strict=True) if other != name and n]
            confused = ", ".join(f"{other} {-n}" for n, other in sorted(mistakes)[:3]) or "-"
            recall, precision = (format_number(scores[kind][name]) for kind in ("recall", "precision"))
            lines.append(f"  {name:<{size}} {scores['tiles'][name]:>5}  {recall:>5}     {precision:>5}  {confused}")
        return lines

    def to_json(self) -> dict[str, Any]:
        """Classes, settings and cross-validated scores."""
        about = {"classes": list(self.classes), "encoder": self.encoder, "dim": self.dim}
        return {**about, "hash": self.content_hash(), "settings": dict(self.settings), **self.evaluation}


def fit_classifier(tiles: LabelledTiles, folds: int = 5, seed: int = 0) -> TissueClassifier:
    """Fit a classifier on labelled tiles and evaluate it by cross-validation; its penalty is chosen inside every training part."""
    smallest = int(np.bincount(tiles.labels, minlength=len(tiles.classes)).min())
    if smallest < 2:
        raise InputError(f"{tiles.source}: a class has {smallest} tile, expected at least 2 of each")
    scaler, weight, bias, strength = _fit(tiles, np.arange(len(tiles.labels)), seed)
    parents = hashlib.blake2b(tiles.features.tobytes() + tiles.labels.tobytes(), digest_size=16).hexdigest()
    settings, scores = {"folds": folds, "seed": seed, "strength": strength}, cross_validate(tiles, folds, seed)
    return TissueClassifier(weight, bias, scaler, tiles.classes, tiles.encoder, settings, scores, parents, __version__)


def cross_validate(tiles: LabelledTiles, folds: int, seed: int) -> dict[str, Any]:
    """Metrics on held-out tiles; tiles of one slide stay together where the slide is known."""
    rows, classes = np.arange(len(tiles.labels)), tiles.classes
    probabilities = np.empty((len(rows), len(classes)))
    parts = inner_folds(tiles.labels, folds, tiles.groups, seed)
    for part in parts:
        scaler, weight, bias, _ = _fit(tiles, np.setdiff1d(rows, part), seed)
        held_out = torch.as_tensor(tiles.features[part])
        probabilities[part] = (scaler(held_out) @ weight + bias).double().softmax(-1).numpy()
    table = confusion(tiles.labels, probabilities.argmax(1), len(classes))
    numbers = classification_metrics(tiles.labels, probabilities)
    truth, predicted = table.sum(1), table.sum(0)
    return {
        **{name: float(numbers[name]) for name in ("accuracy", "balanced_accuracy", "auroc")},
        "recall": dict(zip(classes, map(ratio, np.diag(table), truth), strict=True)),
        "precision": dict(zip(classes, map(ratio, np.diag(table), predicted), strict=True)),
        "confusion": table.tolist(),  # rows are the truth
        "tiles": dict(zip(classes, truth.tolist(), strict=True)),
        "folds": len(parts),
        "slides_kept_together": tiles.groups is not None,
    }


def _fit(tiles: LabelledTiles, rows: np.ndarray, seed: int) -> tuple[Scaler, Tensor, Tensor, float]:
    """Scaler, weight (d, K), bias (K,) and the chosen penalty from these rows alone."""
    x = tiles.features[rows]
    mean, variance = moments(x)
    deviation = variance.clamp_min(FLOOR * float(variance.mean())).sqrt()
    scaler = Scaler(mean.float(), torch.where(deviation > 0, deviation, 1.0).float())
    groups = None if tiles.groups is None else tiles.groups[rows]
    with error_context(tiles.source):
        probe = fit_logistic(
            scaler(torch.as_tensor(x)).numpy(), tiles.labels[rows], len(tiles.classes),
            strengths=STRENGTHS, folds=INNER_FOLDS, groups=groups, seed=seed,
        )  # fmt: skip
    return scaler, torch.as_tensor(probe.weight).float(), torch.as_tensor(probe.bias).float(), probe.strength


def save_classifier(classifier: TissueClassifier, path: Path) -> None:
    """Write one .safetensors with weights, classes, settings and metrics; the same classifier gives the same bytes."""
    tensors = {"weight": classifier.weight, "bias": classifier.bias, **classifier.scaler.state()}
    about = {name: getattr(classifier, name) for name in _ABOUT}
    about |= {"format": FORMAT, "classes": list(classifier.classes), "hash": classifier.content_hash()}
    write_tensors(path, tensors, _KEY, about)


def load_classifier(path: Path | str) -> TissueClassifier:
    """Read a classifier; another file, or one that was changed, is refused."""
    path, expected = Path(path), "expected a tissue classifier (`panther tissue-classifier`)"
    with read_errors(path, "tissue classifier", expected):
        text, tensors = read_tensors(path, _KEY)
    if text is None:
        raise InputError(f"{path}: a safetensors file of something else, {expected}")
    about = json.loads(text)
    if about["format"] > FORMAT:
        raise InputError(f"{path}: written by a newer panther-wsi ({about['version']})")
    weight, bias, shift, scale = (tensors[name] for name in ("weight", "bias", "shift", "scale"))
    fields = {name: about[name] for name in _ABOUT} | {"file": path.name}
    classifier = TissueClassifier(weight, bias, Scaler(shift, scale), tuple(about["classes"]), **fields)
    if classifier.content_hash() != about["hash"] or not bool(torch.isfinite(weight).all()):
        raise InputError(f"{path}: damaged, its weights do not have the hash in its header")
    return classifier

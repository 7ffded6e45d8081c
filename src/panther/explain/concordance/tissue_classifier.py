r"""Where tissue classes of patches come from: a classifier that is trained on labelled tiles, or people's labels.

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
from panther.explain.concordance.agreement import UNKNOWN
from panther.models.probes import fit_logistic, inner_folds
from panther.models.scaling import Scaler, moments
from panther.patches import encoder_words, same_encoder
from panther.statistics import first_bad_row
from panther.storage.bags import list_bags
from panther.storage.clinical import SLIDE_COLUMNS, find_column
from panther.storage.names import without_suffix
from panther.storage.readers import BAG_SUFFIXES
from panther.storage.tables import as_table, source_of
from panther.storage.tensors import TensorFileError, read_tensors, write_tensors
from panther.storage.trident import tile_names
from panther.types import Bag, Prototypes, Rows
from panther.version import __version__

if TYPE_CHECKING:
    import pandas as pd

    from panther.encoders.pipeline import Pipeline

STRENGTHS = (10.0, 1.0, 0.1, 0.01, 0.001)  # of the penalty; on labelled tiles stronger ones never won
INNER_FOLDS = 3  # to choose among them
FLOOR = 1e-2  # of the mean variance: a feature that tiles hardly use must not explode on a slide that does
ROWS = 8192  # labelled at a time
FORMAT = 1  # raised when a reader of the old format would misread the new one
EXPECTED = "expected a folder with one sub-folder of tile images (or of feature files) for each class"
_KEY = "panther_tissue_classifier"
_ABOUT = ("encoder", "settings", "evaluation", "parents", "version")


@dataclass(frozen=True)
class PatchLabels:
    """Labels by slide and corner."""

    classes: tuple[str, ...]
    places: Mapping[str, Mapping[tuple[int, int], int]] = field(repr=False)  # slide -> corner -> class
    source: str

    def label(self, bag: Bag) -> np.ndarray:
        """Probabilities (N, K): one for the class of a labelled patch, zero for others; rows of NaN for patches without a label."""
        if bag.places is None:
            raise InputError(f"{bag.source}: no coordinates, by which labels are matched, expected a classifier")
        labels = self.places.get(bag.slide_id)
        if labels is None:
            raise InputError(f"{self.source}: no row is of the slide {bag.slide_id}")
        corners = np.round(bag.places().double().numpy()).astype(np.int64).tolist()
        tissue = np.array([labels.get((x, y), UNKNOWN) for x, y in corners])
        if (tissue == UNKNOWN).all():
            raise InputError(
                f"{self.source}: none of the {len(labels)} labels of {bag.slide_id} lies on a patch, e.g. {next(iter(labels))}, "
                f"expected upper left corners as in {bag.source}, e.g. {tuple(corners[0])}"
            )
        rows = np.eye(len(self.classes), dtype=np.float32)[tissue]
        rows[tissue == UNKNOWN] = np.nan
        return rows

    def label_prototypes(self, prototypes: Prototypes) -> None:
        """Centroids have no labels."""
        return

    def to_dict(self) -> dict[str, Any]:
        """What it is, as plain values."""
        return {"kind": "labels", "file": Path(self.source).name, "labels": sum(map(len, self.places.values()))}


def read_labels(table: "Path | str | pd.DataFrame") -> PatchLabels:
    """Read a table with the columns slide_id, x, y (upper left corner), label; a patch labelled twice in two ways is refused."""
    import pandas as pd

    rows = as_table(table)
    source = source_of(rows)
    slide = find_column(rows, None, SLIDE_COLUMNS, "slide")
    if slide is None or not {"x", "y", "label"} <= set(rows.columns):
        raise InputError(f"{source}: found the columns {listed(rows.columns)}, expected slide_id, x, y and label")
    x, y = (pd.to_numeric(rows[name], errors="coerce") for name in ("x", "y"))
    names = rows["label"].str.strip()
    bad = x.isna() | y.isna() | (names == "")
    if bad.any():  # counting the header, as a spreadsheet does
        raise InputError(f"{source}: line {int(bad.to_numpy().argmax()) + 2} lacks a number in x or y, or a label")
    classes = tuple(sorted(names.unique()))
    if len(classes) < 2:
        raise InputError(f"{source}: found the label {classes[0]!r} only, expected at least two classes")
    places: dict[str, dict[tuple[int, int], int]] = {}
    corners = zip(x.round().astype(int).tolist(), y.round().astype(int).tolist(), strict=True)
    for name, corner, label in zip(map(without_suffix, rows[slide]), corners, map(classes.index, names), strict=True):
        if places.setdefault(name, {}).setdefault(corner, label) != label:
            raise InputError(f"{source}: the patch {corner} of {name} has two labels")
    return PatchLabels(classes, places, source)


@dataclass(frozen=True)
class LabelledTiles:
    """Features of tiles whose tissue is known."""

    features: np.ndarray  # (n, d) float32
    labels: np.ndarray  # (n,) int64
    classes: tuple[str, ...]
    source: str = "tiles"  # for messages
    encoder: str | None = None
    groups: np.ndarray | None = None  # (n,) slide of each tile, where it is known


def holds_features(folder: Path) -> bool:
    """Whether tiles come as features: a folder with feature files and no images."""
    from panther.encoders.sources import TILE_SUFFIXES

    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder, {EXPECTED}")
    endings = {file.suffix.lower() for file in folder.rglob("*") if file.is_file()}
    return not endings & set(TILE_SUFFIXES) and bool(endings & set(BAG_SUFFIXES))


def find_images(folder: Path, per_class: int, seed: int) -> list[str]:
    """Names (CLASS/.../TILE) of at most ``per_class`` images of each sub-folder, drawn at random; a class without images is refused."""
    from panther.encoders.sources import TileFolder

    classes = _checked_classes(folder, _class_folders(folder))
    names = TileFolder(folder).names()
    if loose := [name for name in names if "/" not in name]:
        raise InputError(f"{folder}: {len(loose)} images, e.g. {loose[0]}, lie beside the class folders")
    rng = np.random.default_rng(seed)
    chosen: list[str] = []
    for of_class in classes:
        tiles = [name for name in names if name.startswith(f"{of_class}/")]
        if not tiles:
            raise InputError(f"{folder / of_class}: no tile images, {EXPECTED}")
        chosen += [tiles[i] for i in _drawn(len(tiles), per_class, rng)]
    return chosen


def encode_images(folder: Path, images: Sequence[str], pipeline: "Pipeline") -> tuple[LabelledTiles, dict[str, str]]:
    """Features of images in a folder, and a sentence for each that cannot be decoded."""
    from panther.encoders.sources import TileFolder

    made = pipeline.run(TileFolder(folder), tuple(images))
    paths = [name.split("/") for name, kept in zip(images, made.kept, strict=True) if kept]
    classes = tuple(sorted({name.split("/")[0] for name in images}))
    has_slides = bool(paths) and all(len(path) > 2 for path in paths)  # CLASS/SLIDE/TILE
    tiles = LabelledTiles(
        made.rows[made.kept].astype(np.float32),
        np.array([classes.index(path[0]) for path in paths]),
        classes,
        str(folder),
        pipeline.encoder.about.name,
        np.array(["/".join(path[1:-1]) for path in paths]) if has_slides else None,
    )
    return tiles, {images[i]: why for i, why in made.failed.items()}


def read_features(folder: Path, per_class: int, seed: int) -> LabelledTiles:
    """Features of labelled patches: `CLASS/*.h5` (one file per slide), or `CLASS.h5`, as `panther slides` makes of tiles."""
    if folders := _class_folders(folder):
        refs = {name: list_bags(folder / name).refs for name in _checked_classes(folder, folders)}
    else:
        refs = {ref.sample: (ref,) for ref in list_bags(folder).refs}
    classes = _checked_classes(folder, list(refs))
    rows, labels, slides, bags = [], [], [], []
    has_slides = True
    for number, name in enumerate(classes):
        for ref in refs[name]:
            bag = ref.open()
            bags.append(bag)
            if bag.dim != bags[0].dim or not same_encoder(bag.encoder, bags[0].encoder):
                raise InputError(
                    f"{bag.source}: {bag.dim} features of {encoder_words(bag.encoder)}, expected those of {bags[0].source}: "
                    f"{bags[0].dim} of {encoder_words(bags[0].encoder)}"
                )
            rows.append(bag.features[: len(bag)].float().numpy())
            labels += [number] * len(bag)
            tiles = tile_names(ref.files[0])
            is_nested = len(tiles) == len(bag) > 0 and all("/" in tile for tile in tiles)  # CLASS/SLIDE/TILE
            slides += [tile.rpartition("/")[0] for tile in tiles] if is_nested else [ref.sample] * len(bag)
            has_slides = has_slides and is_nested
    y, rng = np.array(labels), np.random.default_rng(seed)
    members = [np.flatnonzero(y == k) for k in range(len(classes))]
    if empty := [name for name, one in zip(classes, members, strict=True) if not len(one)]:
        raise InputError(f"{folder}: the class {empty[0]!r} has no patches")
    keep = np.concatenate([one[_drawn(len(one), per_class, rng)] for one in members])
    # one file per class says nothing about slides; several are slides, which stay together
    groups = np.array(slides)[keep] if has_slides or len(bags) > len(classes) else None
    encoder = next((bag.encoder for bag in bags if bag.encoder), None)
    return LabelledTiles(np.concatenate(rows)[keep], y[keep], classes, str(folder), encoder, groups)


def _drawn(count: int, most: int, rng: np.random.Generator) -> np.ndarray:
    return np.arange(count) if count <= most else np.sort(rng.choice(count, most, replace=False))


def _class_folders(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def _checked_classes(folder: Path, classes: Sequence[str]) -> tuple[str, ...]:
    if len(classes) < 2:
        raise InputError(
            f"{folder}: found {len(classes)} classes ({listed(classes)}), expected at least two; {EXPECTED}"
        )
    return tuple(classes)


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
        probabilities = self.probabilities(bag.features)
        if not bool(torch.isfinite(probabilities).all()):
            raise not_finite(bag.source, first_bad_row(bag.features) or 0)
        return probabilities.numpy()

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

    def _check(self, source: str, dim: int, encoder: str | None) -> None:
        """Refuse features, or prototypes, of another encoder or dimension."""
        if dim != self.dim or not same_encoder(encoder, self.encoder):
            raise InputError(
                f"{source}: {dim} features of {encoder_words(encoder)}, but the tissue classifier was trained on {self.dim} of "
                f"{encoder_words(self.encoder)}"
            )

    def to_dict(self) -> dict[str, Any]:
        """What it is, as plain values."""
        about = {"file": self.file, "hash": self.content_hash(), "encoder": self.encoder}
        return {"kind": "tissue classifier", **about, "evaluation": dict(self.evaluation)}

    def to_lines(self) -> list[str]:
        """How well it does, class by class."""
        scores, size = self.evaluation, max(5, *(len(name) for name in self.classes))
        together = ", slides kept together" if scores["slides_kept_together"] else ""
        lines = [
            f"{sum(scores['tiles'].values())} tiles of {len(self.classes)} classes (encoder {self.encoder})",
            f"{scores['folds']}-fold cross-validation{together}: accuracy {scores['accuracy']:.3f}, AUROC {scores['auroc']:.3f}",
            f"  {'class':<{size}} tiles recall precision  taken for",
        ]
        for name, counts in zip(self.classes, scores["confusion"], strict=True):
            mistakes = [(-n, other) for other, n in zip(self.classes, counts, strict=True) if other != name and n]
            taken = ", ".join(f"{other} {-n}" for n, other in sorted(mistakes)[:3]) or "-"
            recall, precision = (
                "-" if scores[kind][name] is None else f"{scores[kind][name]:.3f}" for kind in ("recall", "precision")
            )
            lines.append(f"  {name:<{size}} {scores['tiles'][name]:>5}  {recall:>5}     {precision:>5}  {taken}")
        return lines

    def to_json(self) -> dict[str, Any]:
        """Classes, settings and cross-validated scores."""
        about = {"classes": list(self.classes), "encoder": self.encoder, "dim": self.dim}
        return {**about, "hash": self.content_hash(), "settings": dict(self.settings), **self.evaluation}


def fit_classifier(tiles: LabelledTiles, folds: int = 5, seed: int = 0) -> TissueClassifier:
    """Fit a classifier on labelled tiles and judge it by cross-validation; its penalty is chosen inside every training part."""
    smallest = min(np.bincount(tiles.labels, minlength=len(tiles.classes)).tolist())
    if smallest < 2:
        raise InputError(f"{tiles.source}: a class has {smallest} tile, expected at least 2 of each")
    scaler, weight, bias, strength = _fit(tiles, np.arange(len(tiles.labels)), seed)
    digest = hashlib.blake2b(tiles.features.tobytes() + tiles.labels.tobytes(), digest_size=16).hexdigest()
    settings = {"folds": folds, "seed": seed, "strength": strength}
    scores = cross_validate(tiles, folds, seed)
    return TissueClassifier(
        weight, bias, scaler, tiles.classes, tiles.encoder, settings, scores, digest, __version__
    )  # fmt: skip


def cross_validate(tiles: LabelledTiles, folds: int, seed: int) -> dict[str, Any]:
    """Metrics on tiles that the fit has not seen; tiles of one slide stay together where the slide is known."""
    every, count = np.arange(len(tiles.labels)), len(tiles.classes)
    probabilities = np.empty((len(every), count))
    parts = inner_folds(tiles.labels, folds, tiles.groups, seed)
    for part in parts:
        scaler, weight, bias, _ = _fit(tiles, np.setdiff1d(every, part), seed)
        rows = torch.as_tensor(tiles.features[part])
        probabilities[part] = (scaler(rows) @ weight + bias).double().softmax(-1).numpy()
    table = confusion(tiles.labels, probabilities.argmax(1), count)
    numbers = classification_metrics(tiles.labels, probabilities)
    ratios = {
        kind: {
            name: float(hits / total) if total else None  # JSON has no NaN
            for name, hits, total in zip(tiles.classes, np.diag(table), totals, strict=True)
        }
        for kind, totals in {"recall": table.sum(1), "precision": table.sum(0)}.items()
    }
    return {
        **{name: float(numbers[name]) for name in ("accuracy", "balanced_accuracy", "auroc")},
        **ratios,
        "confusion": table.tolist(),  # rows are the truth
        "tiles": dict(zip(tiles.classes, table.sum(1).tolist(), strict=True)),
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
    how: dict[str, Any] = {"strengths": STRENGTHS, "folds": INNER_FOLDS, "groups": groups, "seed": seed}
    with error_context(tiles.source):
        probe = fit_logistic(scaler(torch.as_tensor(x)).numpy(), tiles.labels[rows], len(tiles.classes), **how)
    return scaler, torch.as_tensor(probe.weight).float(), torch.as_tensor(probe.bias).float(), probe.strength


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
    path, expected = Path(path), "expected a tissue classifier (`panther tissue-classifier`)"
    try:
        text, tensors = read_tensors(path, _KEY)
    except TensorFileError as error:
        raise InputError(f"{path}: cannot be read ({error}), {expected}") from error
    if text is None:
        raise InputError(f"{path}: a safetensors file of something else, {expected}")
    about = json.loads(text)
    if about["format"] > FORMAT:
        raise InputError(f"{path}: written by a newer panther-wsi ({about['version']})")
    weight, bias, shift, scale = (tensors[name] for name in ("weight", "bias", "shift", "scale"))
    known = {name: about[name] for name in _ABOUT}
    classifier = TissueClassifier(weight, bias, Scaler(shift, scale), tuple(about["classes"]), **known, file=path.name)
    if classifier.content_hash() != about["hash"] or not bool(torch.isfinite(weight).all()):
        raise InputError(f"{path}: damaged, its weights do not have the hash in its header")
    return classifier

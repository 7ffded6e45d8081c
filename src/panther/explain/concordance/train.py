"""A tissue classifier from labelled tiles on disk: images, which are encoded, or features."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from panther.encoder_names import same_encoder
from panther.errors import InputError
from panther.explain.concordance.tiles import LabelledTiles, encode_images, find_images, holds_features, read_features
from panther.explain.concordance.tissue_classifier import (
    ClassifierSettings,
    TissueClassifier,
    fit_classifier,
    save_classifier,
)
from panther.storage.inputs import check_output

if TYPE_CHECKING:
    from panther.encoders.pipeline import ExtractSettings


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

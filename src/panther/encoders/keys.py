"""Names of weights: from the layouts in which they are published to those of the networks here."""

import re
from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor

Tensors = Mapping[str, Tensor]
Clean = Callable[
    [Tensors, Tensors], dict[str, Tensor]
]  # published, expected (perhaps on the meta device) -> published, renamed

_NESTS = ("state_dict", "model_state_dict", "model", "teacher", "student", "module", "net", "network", "weights")


def tensors_in(content: object) -> dict[str, Tensor]:
    """Tensors of a checkpoint, wherever it keeps them: {'state_dict': ...}, {'model': ...}, {'teacher': {...}}; else empty."""
    if not isinstance(content, Mapping):
        return {}
    inner = next((content[name] for name in _NESTS if isinstance(content.get(name), Mapping)), None)
    if inner is not None and not any(isinstance(value, Tensor) for value in content.values()):
        return tensors_in(inner)
    return {str(name): value for name, value in content.items() if isinstance(value, Tensor)}


def without_prefix(found: Tensors, expected: Iterable[str]) -> dict[str, Tensor]:
    """Tensors below the prefix (`module.`, `teacher.backbone.`, `visual.` ...) under which most of the expected names lie."""
    wanted = set(expected)
    hits: dict[str, int] = {"": 0}
    for name in found:
        for start in [0, *(match.end() for match in re.finditer(r"\.", name))]:
            if name[start:] in wanted:
                hits[name[:start]] = hits.get(name[:start], 0) + 1
    prefix = max(hits, key=lambda candidate: (hits[candidate], -len(candidate)))
    return {name.removeprefix(prefix): tensor for name, tensor in found.items() if name.startswith(prefix)}


def in_order(found: Tensors, expected: Tensors) -> dict[str, Tensor]:
    """Names by position, where the same tensors were saved in the same order under other names (EfficientNet-Lite0).

    The classifier at the end is left over. Where the order does not fit, the names stay, and loading explains what is wrong.
    """
    pairs = list(zip(expected.items(), found.values(), strict=False))
    if set(found) >= set(expected) or not pairs or any(mine.shape != theirs.shape for (_, mine), theirs in pairs):
        return dict(found)
    rest = list(found.items())[len(pairs) :]
    return {name: tensor for (name, _), tensor in pairs} | {f"fc.{name}": tensor for name, tensor in rest}


def from_old_swin(found: Tensors, expected: Tensors) -> dict[str, Tensor]:
    """Swin of timm before 0.9: merging of patches stands at the end of layer i, now at the start of layer i + 1; tables are computed."""
    old = any(".downsample." in f".{name}" and re.search(r"(^|\.)layers\.0\.downsample\.", name) for name in found)
    renamed = {}
    for name, tensor in found.items():
        if name.endswith(("attn_mask", "relative_position_index")):
            continue
        if old:
            name = re.sub(
                r"(^|\.)layers\.(\d+)\.downsample\.", lambda m: f"{m[1]}layers.{int(m[2]) + 1}.downsample.", name
            )
        renamed[name] = tensor
    return renamed


# transformers -> timm; the first pattern that is found is replaced
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


def from_huggingface(found: Tensors, expected: Tensors) -> dict[str, Tensor]:
    """ViT and DINOv2 as transformers saves them: query, key and value apart, other names."""
    renamed: dict[str, Tensor] = {}
    for name, tensor in found.items():
        if (match := _QUERY.search(name)) is not None:
            parts = [found.get(name.replace(".query.", f".{part}.")) for part in ("query", "key", "value")]
            whole = [part for part in parts if part is not None]
            if len(whole) == 3:
                renamed[_QUERY.sub(rf"blocks.{match[1]}.attn.qkv.{match[2]}", name)] = torch.cat(whole)
                continue
        if re.search(r"\.attention\.attention\.(key|value)\.", name):
            continue
        renamed[_renamed(name, _HUGGINGFACE)] = tensor
    return renamed


_DINOV2 = {r"\.mlp\.w12\.": ".mlp.fc1.", r"\.mlp\.w3\.": ".mlp.fc2.", r"(^|\.)register_tokens$": r"\1reg_token"}


def from_dinov2(found: Tensors, expected: Tensors) -> dict[str, Tensor]:
    """Names of facebookresearch/dinov2; its position embedding counts the class token also beside registers, timm's does not."""
    renamed = {_renamed(name, _DINOV2): tensor for name, tensor in found.items()}
    if "reg_token" in expected and "register_tokens" in found:
        place = renamed["pos_embed"]  # (1, 1 + patches, d)
        renamed["cls_token"] = renamed["cls_token"] + place[:, :1]
        renamed["pos_embed"] = place[:, 1:]
    return renamed


def resampled_places(found: Tensors, expected: Tensors) -> dict[str, Tensor]:
    """Position embeddings (1, T, d) of another image size, interpolated to the expected number of tokens."""
    from timm.layers import resample_abs_pos_embed

    out = dict(found)
    for name, mine in expected.items():
        theirs = found.get(name)
        if not name.endswith("pos_embed") or theirs is None or theirs.ndim != 3 or theirs.shape == mine.shape:
            continue
        prefix = next((n for n in (0, 1) if _square(mine.shape[1] - n) and _square(theirs.shape[1] - n)), None)
        if prefix is None or theirs.shape[2] != mine.shape[2]:
            continue
        side = round((mine.shape[1] - prefix) ** 0.5)
        out[name] = resample_abs_pos_embed(theirs, [side, side], num_prefix_tokens=prefix)
    return out


def _square(count: int) -> bool:
    return count > 0 and round(count**0.5) ** 2 == count


def _renamed(name: str, patterns: Mapping[str, str]) -> str:
    for pattern, replacement in patterns.items():
        new, changed = re.subn(pattern, replacement, name)
        if changed:
            return new
    return name

"""From an encoder's name to a network with its weights: registered encoders, those of timm, the user's."""

import copy
import hashlib
import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from panther.encoders._base import IMAGENET, Encoder, EncoderEntry, encoders
from panther.encoders.weights import checked, find_weights, resampled_positions, tensors_in, without_prefix
from panther.errors import InputError, check_choice, note, require_packages, suggestion
from panther.storage.tensors import read_network_weights

PRECISIONS = ("auto", "float32", "bfloat16", "float16", "float8")


@dataclass(frozen=True)
class EncoderRecipe:
    """Facts and architecture of an encoder."""

    about: EncoderEntry
    build: Callable[[], nn.Module]
    has_weights: bool = False  # the user's factory, which may load its weights


def load_encoder(
    name: str, weights: Path | None = None, *, device: str = "cpu", precision: str = "auto", seed: int | None = None
) -> Encoder:
    """Encoder of that name (`uni`, `timm:NAME`, `module.path:factory`) with weights of a file, a package or the hub.

    ``precision`` is the type of the weights: float32, bfloat16, float16, float8 (see `panther.encoders.float8`), or auto, which is float16
    on a GPU (bfloat16 where that overflows) and float32 elsewhere. With ``seed`` the weights are random: for tests and measurements of speed.
    """
    check_choice("precision", precision, PRECISIONS)
    recipe, target = find_recipe(name), torch.device(device)
    if precision == "float8":
        from panther.encoders.float8 import check_float8

        check_float8(target)
    if seed is not None:
        torch.manual_seed(seed)
        model = recipe.build()
    else:
        model = _with_weights(recipe, weights)
    model = model.float().eval().requires_grad_(False).to(target)
    weights_hash, is_auto = fingerprint(model), precision == "auto"
    model = without_batch_norms(model, recipe.about.size)
    if is_auto:
        precision = "float16" if target.type == "cuda" else "float32"
    model = model.to(memory_format=torch.channels_last)
    if precision == "float8":
        from panther.encoders.float8 import with_float8_products

        half = Encoder(recipe.about, copy.deepcopy(model).half(), weights_hash, target, "float16")
        model = with_float8_products(model, name)
        return replace(half, model=model, precision="float8", reference=half)
    encoder = Encoder(recipe.about, model.to(getattr(torch, precision)), weights_hash, target, precision, is_auto)
    if precision == "float32":
        return encoder
    try:
        encoder(np.zeros((1, recipe.about.size, recipe.about.size, 3), np.uint8))
    except RuntimeError as error:  # the user's network casts to float32 inside
        if not is_auto:
            raise InputError(f"precision: encoder {name!r} does not compute in {precision} ({error})") from error
        note(f"encoder {name!r} computes in float32: {error}")
        return replace(encoder, model=model.float(), precision="float32")
    return encoder


@torch.no_grad()
def without_batch_norms(model: nn.Module, size: int) -> nn.Module:
    """The network with batch norms folded into the convolutions before them; itself where that is not the same function.

    Neighbours in a module need not be neighbours in the computation, so the features of a picture of noise are compared.
    """
    if not any(isinstance(module, nn.BatchNorm2d) for module in model.modules()):
        return model
    folded = copy.deepcopy(model)
    for module in folded.modules():
        for (first, convolution), (second, norm) in pairwise(list(module.named_children())):
            if isinstance(convolution, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                setattr(module, first, fuse_conv_bn_eval(convolution, norm))
                setattr(module, second, getattr(norm, "act", nn.Identity()))  # timm's norms hold their activation
    noise = torch.rand(1, 3, size, size, generator=torch.Generator().manual_seed(0))
    noise = noise.to(next(model.parameters()))
    before, after = model(noise), folded(noise)
    return folded if bool((after - before).norm() < 1e-4 * before.norm()) else model


def find_recipe(name: str) -> EncoderRecipe:
    """Recipe of an encoder by its name."""
    require_packages("encoders", "timm")
    if name.startswith("timm:"):
        return _of_timm(name)
    if name in encoders:
        return EncoderRecipe(encoders.entry(name).metadata, encoders[name])
    if ":" in name:
        return _of_factory(name)
    known = suggestion(name, encoders.names())
    raise InputError(f"There is no encoder {name!r}; {known}, any timm:NAME and any module.path:factory")


def fingerprint(model: nn.Module) -> str:
    """Hash of all names and shapes and of up to 64 numbers of every tensor, without reading gigabytes."""
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in model.state_dict().items():
        flat = tensor.detach().reshape(-1)
        sample = flat[:: max(1, len(flat) // 64)][:64].cpu()
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(sample.contiguous().numpy().tobytes())
    return digest.hexdigest()


def _with_weights(recipe: EncoderRecipe, weights: Path | None) -> nn.Module:
    if recipe.has_weights and weights is None:
        return recipe.build()
    about = recipe.about
    path = weights or find_weights(about)
    with torch.device("meta"):
        model = recipe.build()  # a billion parameters in half a second
    expected = model.state_dict()
    published = {name.removeprefix(about.under): tensor for name, tensor in expected.items()}
    tensors = tensors_in(read_network_weights(path))
    if about.clean is not None:
        tensors = about.clean(tensors, published)
    tensors = {about.under + name: tensor for name, tensor in without_prefix(tensors, published).items()}
    tensors = checked(path, about, resampled_positions(tensors, expected), expected)
    if any(name not in expected for name, _ in model.named_buffers()):
        model = recipe.build()  # computes the buffers that are not saved
        model.load_state_dict(tensors)
    else:
        model.load_state_dict(tensors, assign=True)
    return model


def _of_timm(name: str) -> EncoderRecipe:
    import timm

    architecture = name.removeprefix("timm:")
    if not timm.is_model(architecture):
        close = timm.list_models(f"*{architecture.split('.')[0][:8]}*")[:5]
        hint = f"; similar are {', '.join(close)}" if close else ""
        raise InputError(f"timm {timm.__version__} has no model {architecture!r}{hint}")
    build = partial(timm.create_model, architecture, pretrained=False, num_classes=0)
    with torch.device("meta"):
        model: Any = build()
    cfg = model.pretrained_cfg
    classifier = cfg.get("classifier") or ()
    facts = EncoderEntry(
        name=name,
        dim=int(getattr(model, "head_hidden_size", None) or model.num_features),
        size=int(cfg["input_size"][-1]),
        mpp=None,
        mean=tuple(cfg["mean"]),
        std=tuple(cfg["std"]),
        licence=str(cfg.get("license") or "see its model card"),
        hub=cfg.get("hf_hub_id"),
        interpolation="bilinear" if cfg.get("interpolation") == "bilinear" else "bicubic",
        drop=tuple(f"{head}." for head in ((classifier,) if isinstance(classifier, str) else classifier)),
    )
    return EncoderRecipe(facts, build)


def _of_factory(name: str) -> EncoderRecipe:
    module_path, _, attribute = name.partition(":")
    path = sys.path.copy()
    sys.path.insert(0, str(Path.cwd()))  # imports from the working folder, as `python -m`
    try:
        factory = getattr(importlib.import_module(module_path), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"The encoder {name!r} cannot be imported ({error}), expected module.path:factory") from error
    finally:
        sys.path[:] = path
    if not callable(factory):
        raise InputError(f"The encoder {name!r} is no function, expected one that returns a torch module")

    def build() -> nn.Module:
        model = factory()
        if not isinstance(model, nn.Module):
            raise InputError(f"The encoder {name!r} returned {type(model).__name__}, expected a torch module")
        return model

    # facts are attributes of the module; the defaults are those of ImageNet, and the dimension is measured
    model = build().eval()
    facts = EncoderEntry(name, 0, 224, None, IMAGENET["mean"], IMAGENET["std"], "the user's")
    attributes = ("dim", "size", "mpp", "mean", "std", "resize")
    facts = replace(facts, **{key: getattr(model, key) for key in attributes if hasattr(model, key)})
    if not facts.dim:
        with torch.inference_mode():
            out = model(torch.zeros(1, 3, facts.size, facts.size))
        if not isinstance(out, torch.Tensor) or out.ndim != 2:
            shape = f"(B, 3, {facts.size}, {facts.size})"
            raise InputError(f"The encoder {name!r} does not turn images {shape} into (B, d)")
        facts = replace(facts, dim=int(out.shape[1]))
    return EncoderRecipe(facts, build, has_weights=True)

r"""Matrix products of a network in float8 (e4m3), for GPUs that have it, and the agreement of its features with those of float16.

Each row of the input and each row of the weights has a scale of its own, so that its largest number is the largest of float8:

.. math:: s_i = \max_k |x_{ik}| / 448, \quad y_{ij} = s_i t_j \sum_k \mathrm{f8}(x_{ik} / s_i)\, \mathrm{f8}(w_{jk} / t_j) + b_j

Sums are float32, everything else (norms, attention, residual sums) is bfloat16. The scaling is fast only when compiled.
"""

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from panther.errors import InputError
from panther.prototypes.kmeans import kmeans

FLOAT8 = torch.float8_e4m3fn
LARGEST = torch.finfo(FLOAT8).max  # 448
LEAST_WIDTH = 512  # of a product; below, scaling its input takes longer than float8 saves
PROTOTYPES = 16  # of the patches that features are compared on


@torch.library.custom_op("panther::float8_product", mutates_args=())
def float8_product(x: Tensor, weight: Tensor, scale: Tensor, weight_scale: Tensor, bias: Tensor | None) -> Tensor:
    """Product (n, out), bfloat16, of rows (n, in) and weights (out, in) with their scales (n, 1) and (1, out).

    An operator of its own, because torch 2.11 cannot compile through `scaled_mm`.
    """
    by_row = functional.ScalingType.RowWise
    return functional.scaled_mm(
        x, weight.T, scale, by_row, weight_scale, by_row, bias=bias, output_dtype=torch.bfloat16, use_fast_accum=True
    )


@float8_product.register_fake
def _(x: Tensor, weight: Tensor, scale: Tensor, weight_scale: Tensor, bias: Tensor | None) -> Tensor:
    return x.new_empty((x.shape[0], weight.shape[0]), dtype=torch.bfloat16)


class Float8Linear(nn.Module):
    """A linear layer whose product is float8 times float8."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        weight, scale = to_float8(layer.weight)
        self.register_buffer("weight", weight)  # (out, in)
        self.register_buffer("scale", scale.T.contiguous())  # (1, out)
        self.bias = None if layer.bias is None else nn.Parameter(layer.bias.to(torch.bfloat16), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """Features (..., out), bfloat16, of the input (..., in)."""
        rows, scale = to_float8(x.reshape(-1, x.shape[-1]))
        out = float8_product(rows, cast(Tensor, self.weight), scale, cast(Tensor, self.scale), self.bias)
        return out.reshape(*x.shape[:-1], -1)


def to_float8(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows (n, d) in float8, and their scales (n, 1)."""
    scale = rows.abs().amax(1, keepdim=True).float().clamp(min=1e-12) / LARGEST
    return (rows.float() / scale).clamp(-LARGEST, LARGEST).to(FLOAT8), scale


def check_float8(device: torch.device) -> None:
    """Refuse a device, or a torch, without products of float8."""
    if device.type != "cuda" or torch.cuda.get_device_capability(device) < (8, 9):
        raise InputError(
            f"precision: found float8 on {device}, expected an NVIDIA GPU of compute capability 8.9 or more"
        )
    if not hasattr(functional, "scaled_mm"):
        raise InputError(f"precision: found float8 with torch {torch.__version__}, expected torch 2.10 or newer")


def with_float8_products(model: nn.Module, name: str) -> nn.Module:
    """The network in bfloat16, its wide linear layers in float8 (in place); a network without any is refused."""
    model = model.to(torch.bfloat16)
    wide = [
        (path, layer)
        for path, layer in model.named_modules()
        if isinstance(layer, nn.Linear) and min(layer.weight.shape) >= LEAST_WIDTH and not sum(layer.weight.shape) % 16
    ]
    if not wide:
        raise InputError(f"precision: encoder {name!r} has no linear layers of {LEAST_WIDTH} features for float8")
    for path, layer in wide:
        parent, _, attribute = path.rpartition(".")
        setattr(model.get_submodule(parent), attribute, Float8Linear(layer))
    return model


def agreement(features: Tensor, reference: Tensor) -> dict[str, float]:
    """Agreement of features (N, d) with the same in higher precision: the smallest cosine, and the share with the same prototype.

    The prototypes are centroids of K-means on the reference.
    """
    cosine = functional.cosine_similarity(features, reference)
    centroids = kmeans(reference, min(PROTOTYPES, len(reference)), 0, 1)[0].centroids
    same = torch.cdist(features, centroids).argmin(1) == torch.cdist(reference, centroids).argmin(1)
    return {"smallest_cosine": float(cosine.min()), "same_prototype": float(same.float().mean())}

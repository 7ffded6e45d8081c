"""CTransPath: a Swin-T whose patches are embedded by a small convolutional network."""

from itertools import pairwise
from typing import Any

from torch import Tensor, nn

from panther.encoders._base import IMAGENET, encoders
from panther.encoders.keys import from_old_swin
from panther.encoders.zoo import timm_model


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

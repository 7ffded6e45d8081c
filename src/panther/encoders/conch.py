"""CONCH's image tower: timm's ViT-B/16 at 448 px and an attention pooling with one query."""

from typing import Any

from torch import Tensor, nn, zeros

from panther.encoders._base import encoders
from panther.encoders.zoo import HUB, timm_model


class AttentionPool(nn.Module):
    """One learned query looks at all tokens: (B, T, d_in) -> (B, d_out)."""

    def __init__(self, dim: int, dim_in: int, heads: int) -> None:
        super().__init__()
        self.query = nn.Parameter(zeros(1, dim))
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

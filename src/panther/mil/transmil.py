"""TransMIL: patches and a class token attend to each other; convolutions over a square of patches give positions."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from panther.errors import InputError
from panther.mil._attention import attend, attention_weights, join_heads, nystroem, nystroem_row, split_heads
from panther.mil._base import Network, NetworkInputs, check_heads, check_sizes, check_switches, networks
from panther.types import SlideEmbedding

RESIDUAL_KERNEL = 33  # tokens that the convolution of the values spans


class SelfAttention(nn.Module):
    r"""One layer: :math:`x + \mathrm{Dropout}(W_o [\mathrm{Attention}(q, k, v) + \mathrm{conv}(v)])`, q, k, v of LayerNorm(x).

    conv is a convolution along the tokens, one kernel of 33 a head: the skip of the values in Nystroemformer (fig. 2).
    """

    def __init__(self, hidden: int, heads: int, landmarks: int, iterations: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.landmarks, self.iterations = heads, landmarks, iterations  # landmarks 0: exact attention
        self.norm = nn.LayerNorm(hidden)
        self.qkv = nn.Linear(hidden, 3 * hidden, bias=False)
        self.values = nn.Conv2d(
            heads, heads, (RESIDUAL_KERNEL, 1), padding=(RESIDUAL_KERNEL // 2, 0), groups=heads, bias=False
        )
        self.out = nn.Sequential(nn.Linear(hidden, hidden), nn.Dropout(dropout))

    def forward(self, x: Tensor) -> Tensor:
        """Tokens (B, n, h) to tokens (B, n, h)."""
        q, k, v = self._project(x)
        attended = nystroem(q, k, v, self.landmarks, self.iterations) if self.landmarks else attend(q, k, v)
        return x + self.out(join_heads(attended + self.values(v)))

    @torch.no_grad()
    def first_row(self, x: Tensor) -> Tensor:
        """Attention (B, n) of the first token to all."""
        q, k, _ = self._project(x)
        if self.landmarks:
            return nystroem_row(q, k, self.landmarks, self.iterations)
        return attention_weights(q[..., :1, :], k)[:, 0]

    def _project(self, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(split_heads(part, self.heads) for part in self.qkv(self.norm(x)).chunk(3, dim=-1))


class PositionEncoding(nn.Module):
    r"""PPEG: :math:`x + \mathrm{conv}_7(x) + \mathrm{conv}_5(x) + \mathrm{conv}_3(x)`, a kernel a channel, over the square of patches.

    Convolutions add up: the three kernels and the identity are summed into one of 7 x 7, which is applied once.
    """

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.wide, self.middle, self.narrow = (
            nn.Conv2d(hidden, hidden, size, padding=size // 2, groups=hidden) for size in (7, 5, 3)
        )

    def forward(self, x: Tensor, side: int) -> Tensor:
        """Patches (B, side^2, h) to patches of the same shape."""
        kernel, bias = self.kernel()
        square = x.transpose(1, 2).unflatten(-1, (side, side))  # (B, h, side, side)
        return functional.conv2d(square, kernel, bias, padding=3, groups=x.shape[-1]).flatten(-2).transpose(1, 2)

    def kernel(self) -> tuple[Tensor, Tensor]:
        """Sum of the kernels (h, 1, 7, 7), the identity in the middle, and of the biases (h,)."""
        weight = (
            self.wide.weight + functional.pad(self.middle.weight, [1] * 4) + functional.pad(self.narrow.weight, [2] * 4)
        )
        identity = torch.zeros_like(weight)
        identity[..., 3, 3] = 1
        biases = [c.bias for c in (self.wide, self.middle, self.narrow) if c.bias is not None]
        return weight + identity, torch.stack(biases).sum(0)


@networks.register(
    "transmil",
    title="TransMIL",
    permutation_invariant=False,  # grid, segments of landmarks: neighbours in the file matter
    duplication_invariant=False,
    differentiable=True,
    needs_prototypes=False,
    options=("hidden", "heads", "landmarks", "iterations", "exact", "token_deviation", "dropout"),
    variants=(
        {"hidden": 16, "heads": 2, "landmarks": 8},
        {"hidden": 16, "heads": 2, "landmarks": 8, "exact": True},
        {"hidden": 16, "heads": 2, "landmarks": 256, "token_deviation": 1.0},
    ),
)
class TransMIL(Network):
    r"""Transformer-based correlated multiple instance learning.

    .. math:: h_n = \mathrm{ReLU}(W x_n),\quad T = [t; h_1 \dots h_N, h_1 \dots h_M],\ N + M = \lceil\sqrt N\rceil^2,\quad
              T \leftarrow \mathrm{SA}(T),\ \mathrm{PPEG}(T),\ \mathrm{SA}(T),\quad z = \mathrm{LayerNorm}(T)_0

    with Nystroem self-attention SA through m landmarks. Shao et al.: TransMIL, NeurIPS 2021, algorithm 2 and section 3.3; Xiong
    et al.: Nystroemformer, AAAI 2021. Every bag is cut to its true length first: padding would move patches on the square.

    Parameters
    ----------
    inputs : NetworkInputs
        Features before it.
    hidden, heads : int
        Width of the tokens, and the heads it is split into.
    landmarks, iterations : int
        Landmarks m (bags of up to m tokens get exact attention), and steps of the pseudo-inverse.
    exact : bool
        Exact attention for every length: time grows with N^2, memory does not.
    token_deviation : float
        Standard deviation of the class token at the start; 1 in the published program.
    dropout : float
        After each attention.
    """

    def __init__(
        self,
        inputs: NetworkInputs,
        hidden: int = 512,
        heads: int = 8,
        landmarks: int = 256,
        iterations: int = 6,
        exact: bool = False,
        token_deviation: float = 0.02,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        check_sizes("transmil", dropout, hidden=hidden, heads=heads, landmarks=landmarks, iterations=iterations)
        check_heads("transmil", hidden, heads)
        check_switches("transmil", exact=exact)
        if not 0 < token_deviation < math.inf:
            raise InputError(
                f"The setting 'token_deviation' of 'transmil' is {token_deviation!r}; expected a number above 0."
            )
        self.dim_in, self.out_dim = inputs.dim_in, hidden
        self.reduce = nn.Sequential(nn.Linear(inputs.dim_in, hidden), nn.ReLU(inplace=True))
        self.token = nn.Parameter(torch.randn(1, 1, hidden) * token_deviation)
        few = 0 if exact else landmarks
        self.first = SelfAttention(hidden, heads, few, iterations, dropout)
        self.positions = PositionEncoding(hidden)
        self.second = SelfAttention(hidden, heads, few, iterations, dropout)
        self.norm = nn.LayerNorm(hidden)

    def embed(self, x: Tensor, mask: Tensor | None, with_assignment: bool) -> SlideEmbedding:
        """Embed the bags of each length together."""
        if mask is None:
            vector, rows = self._cut(x, with_assignment)
            return SlideEmbedding(vector, None, None if rows is None else rows.unsqueeze(-1))
        lengths = mask.sum(-1)  # (B,)
        vector = x.new_zeros(len(x), self.out_dim)
        maps = x.new_zeros(x.shape[:2]) if with_assignment else None
        for length in lengths.unique().tolist():
            chosen = (lengths == length).nonzero().squeeze(-1)
            real = mask[chosen]  # (b, N), `length` True in each row
            vectors, rows = self._cut(x[chosen][real].unflatten(0, (len(chosen), length)), with_assignment)
            vector = vector.index_copy(0, chosen, vectors.to(vector))
            if maps is not None and rows is not None:
                maps[chosen] = maps[chosen].masked_scatter(real, rows)
        return SlideEmbedding(vector, None, None if maps is None else maps.unsqueeze(-1))

    def _cut(self, bags: Tensor, with_map: bool) -> tuple[Tensor, Tensor | None]:
        """Vectors (b, h) of bags (b, n, d) without padding, and the class token's attention (b, n) in the last layer."""
        n = bags.shape[1]
        side = math.isqrt(n - 1) + 1  # ceil of the root
        h = self.reduce(bags)
        token = self.token.expand(len(bags), -1, -1)
        tokens = self.first(torch.cat([token, h, h[:, : side * side - n]], dim=1))  # the first patches once more
        tokens = torch.cat([tokens[:, :1], self.positions(tokens[:, 1:], side)], dim=1)
        vector = self.norm(self.second(tokens)[:, 0])
        return vector, self._map(tokens, n) if with_map else None

    def _map(self, tokens: Tensor, n: int) -> Tensor:
        row = self.second.first_row(tokens)[:, 1:]  # without the class token itself
        patches = row[:, :n].clone()
        patches[:, : row.shape[1] - n] += row[:, n:]  # a patch that was repeated is one patch
        return patches / patches.sum(-1, keepdim=True).clamp_min(torch.finfo(row.dtype).tiny)

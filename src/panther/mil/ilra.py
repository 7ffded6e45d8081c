"""ILRA: patches talk to each other through a few learnable latents, again and again; then one query looks at them all."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from panther.mil._attention import attend, attention_weights, join_heads, split_heads
from panther.mil._base import Network, NetworkInputs, check_heads, check_sizes, check_switches, networks
from panther.types import SlideEmbedding


class AttentionBlock(nn.Module):
    r"""Gated attention block of queries Q on keys K.

    .. math:: q = W_q Q,\quad o = \mathrm{LN}(q + W_a\,\mathrm{MHA}(W_i q, W_k K, W_v K)),\quad
              o \leftarrow \mathrm{LN}(o + \mathrm{ReLU}(W_o o)),\quad \mathrm{GAB}(Q, K) = o \odot \mathrm{SiLU}(W_g Q)

    The queries are projected twice: q is also what the attention adds to, so :math:`W_i` inside of it is no part of :math:`W_q`. Keys and values
    are projected twice in the original as well, but nothing looks at what lies between: two linear maps in a row are one.
    """

    def __init__(self, dim_query: int, dim_key: int, hidden: int, heads: int, gated: bool) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(dim_query, hidden)
        self.inner_query = nn.Linear(hidden, hidden)
        self.key_value = nn.Linear(dim_key, 2 * hidden)
        self.joined = nn.Linear(hidden, hidden)
        self.out = nn.Linear(hidden, hidden)
        self.gate = nn.Linear(dim_query, hidden) if gated else None
        self.norm_attention, self.norm_out = nn.LayerNorm(hidden), nn.LayerNorm(hidden)

    def forward(self, queries: Tensor, keys: Tensor, mask: Tensor | None = None) -> Tensor:
        """(B, L, dim_query) and (B, N, dim_key) with a mask (B, N) of the keys to (B, L, hidden)."""
        q = self.query(queries)
        k, v = (split_heads(t, self.heads) for t in self.key_value(keys).chunk(2, dim=-1))
        attended = join_heads(attend(split_heads(self.inner_query(q), self.heads), k, v, mask))
        o = self.norm_attention(q + self.joined(attended))
        o = self.norm_out(o + functional.relu(self.out(o)))
        return o if self.gate is None else o * functional.silu(self.gate(queries))

    @torch.no_grad()
    def weights(self, queries: Tensor, keys: Tensor, mask: Tensor | None = None) -> Tensor:
        """Attention (B, L, N), the heads' mean."""
        k = self.key_value(keys).chunk(2, dim=-1)[0]
        q = self.inner_query(self.query(queries))
        return attention_weights(split_heads(q, self.heads), split_heads(k, self.heads), mask)


class LowRankBlock(nn.Module):
    r"""One iteration: latents gather from the patches, patches look at what was gathered.

    .. math:: H = \mathrm{GAB}(L, X) \in R^{r \times h},\quad X' = \mathrm{GAB}(X, H)

    All-to-all attention of rank r: O(N r) instead of O(N^2).
    """

    def __init__(self, dim: int, hidden: int, heads: int, latents: int) -> None:
        super().__init__()
        self.latents = nn.Parameter(nn.init.xavier_uniform_(torch.empty(1, latents, hidden)))
        self.gather = AttentionBlock(hidden, dim, hidden, heads, gated=True)
        self.spread = AttentionBlock(dim, hidden, hidden, heads, gated=True)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """(B, N, dim) to (B, N, hidden)."""
        return self.spread(x, self.gather(self.latents.expand(len(x), -1, -1), x, mask))


@networks.register(
    "ilra",
    title="ILRA",
    permutation_invariant=True,
    duplication_invariant=True,
    differentiable=True,
    needs_prototypes=False,
    revision=2,  # 1 had no inner projection of the queries
    options=("hidden", "heads", "latents", "layers", "xavier", "dropout"),
    variants=(
        {"hidden": 16, "heads": 2, "latents": 4},
        {"hidden": 16, "heads": 4, "latents": 3, "layers": 1, "xavier": True},
    ),
)
class ILRA(Network):
    r"""Iterative low-rank attention.

    .. math:: X_{l+1} = \mathrm{GAB}(X_l, \mathrm{GAB}(L_l, X_l)),\quad z = \mathrm{AB}(s, X_{\text{last}})

    with learnable latents L and a learnable query s: non-local pooling, attention without a gate. Xiang et al.: Exploring low-rank property in
    multiple instance learning for whole slide image classification, ICLR 2023, section 3.2. (Their contrastive pre-training of the encoder is
    not part of this network.)

    Parameters
    ----------
    inputs : NetworkInputs
        Features before it.
    hidden, heads : int
        Width, and the heads it is split into.
    latents, layers : int
        Rank r, and the number of iterations.
    xavier : bool
        Weights start as Xavier's normal numbers, as in the published program, instead of torch's uniform ones.
    dropout : float
        Of the vector.
    """

    def __init__(
        self,
        inputs: NetworkInputs,
        hidden: int = 256,
        heads: int = 8,
        latents: int = 64,
        layers: int = 2,
        xavier: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_sizes("ilra", dropout, hidden=hidden, heads=heads, latents=latents, layers=layers)
        check_heads("ilra", hidden, heads)
        check_switches("ilra", xavier=xavier)
        self.dim_in, self.out_dim = inputs.dim_in, hidden
        self.blocks = nn.ModuleList(
            LowRankBlock(inputs.dim_in if layer == 0 else hidden, hidden, heads, latents) for layer in range(layers)
        )
        self.query = nn.Parameter(nn.init.xavier_uniform_(torch.empty(1, 1, hidden)))
        self.pool = AttentionBlock(hidden, hidden, hidden, heads, gated=False)
        self.dropout = nn.Dropout(dropout)
        for layer in self.modules() if xavier else ():
            if isinstance(layer, nn.Linear):
                for weight in layer.weight.split(hidden):  # keys and values are two layers in one
                    nn.init.xavier_normal_(weight.detach())

    def embed(self, x: Tensor, mask: Tensor | None, with_assignment: bool) -> SlideEmbedding:
        """Iterate, then pool."""
        for block in self.blocks:
            x = block(x, mask)  # (B, N, h)
        query = self.query.expand(len(x), -1, -1)
        vector = self.dropout(self.pool(query, x, mask).squeeze(-2))
        assignment = self.pool.weights(query, x, mask).transpose(-1, -2) if with_assignment else None
        return SlideEmbedding(vector, None, assignment)

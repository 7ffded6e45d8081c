"""Attention over patches as free functions: pooling, several heads, Nystroem. Nothing here ever holds an N x N matrix."""

import torch
from torch import Tensor, nn
from torch.nn import functional


class AttentionScore(nn.Module):
    r"""Score of a patch: :math:`s_n = w^\top \tanh(V h_n)`, gated :math:`w^\top (\tanh(V h_n) \odot \sigma(U h_n))`.

    Ilse, Tomczak, Welling: Attention-based deep multiple instance learning, ICML 2018, eq. 8 and 9.
    """

    def __init__(self, dim: int, attention: int, gated: bool, dropout: float) -> None:
        super().__init__()
        self.content = nn.Linear(dim, attention)
        self.gate = nn.Linear(dim, attention) if gated else None
        self.dropout = nn.Dropout(dropout)
        self.score = nn.Linear(attention, 1)

    def forward(self, h: Tensor) -> Tensor:
        """Scores (..., N) of h (..., N, dim)."""
        activity = self.dropout(torch.tanh(self.content(h)))
        if self.gate is not None:
            activity = activity * self.dropout(torch.sigmoid(self.gate(h)))
        return self.score(activity).squeeze(-1)


def masked_softmax(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Softmax over the last dimension among the entries whose mask is True; the others get exactly 0."""
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return scores.softmax(-1)


def split_heads(x: Tensor, heads: int) -> Tensor:
    """(B, n, h) as (B, heads, n, h / heads)."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """(B, heads, n, k) as (B, n, heads k)."""
    return x.transpose(1, 2).flatten(-2)


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    r"""Fused :math:`\mathrm{softmax}(q k^\top / \sqrt{d})\, v`: (B, heads, L, d) against (B, heads, N, d); mask (B, N) of the keys."""
    allowed = None if mask is None else mask[:, None, None, :].expand(-1, -1, q.shape[-2], -1)
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=allowed)


@torch.no_grad()
def attention_weights(q: Tensor, k: Tensor, mask: Tensor | None = None) -> Tensor:
    """Weights behind :func:`attend`, the heads' mean (B, L, N), for maps: only with few queries L."""
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5  # (B, heads, L, N)
    return masked_softmax(scores, None if mask is None else mask[:, None, None, :]).mean(1)


def segment_means(x: Tensor, count: int) -> Tensor:
    """Means (..., count, d) of consecutive segments of x (..., n, d), whose lengths differ by one at most.

    The published code puts zeros before the sequence to make it divisible: they pull the first landmark towards zero and let
    the length of the bag shift every segment. Segments of two lengths need no zeros.
    """
    n, dim = x.shape[-2:]
    length, longer = divmod(n, count)  # `longer` segments hold one more
    head, tail = x.split([longer * (length + 1), (count - longer) * length], dim=-2)
    parts = [
        head.unflatten(-2, (longer, length + 1)).mean(-2) if longer else head.reshape(*x.shape[:-2], 0, dim),
        tail.unflatten(-2, (count - longer, length)).mean(-2),
    ]
    return torch.cat(parts, dim=-2)


def pseudo_inverse(a: Tensor, iterations: int) -> Tensor:
    r"""Moore-Penrose inverse of a (..., m, m) by a matrix iteration of third order.

    .. math:: Z_0 = \frac{A^\top}{\|A\|_1 \|A\|_\infty},\quad
              Z_{j+1} = \tfrac14 Z_j (13 I - A Z_j (15 I - A Z_j (7 I - A Z_j)))

    Xiong et al.: Nystroemformer, AAAI 2021, eq. 11. Each matrix has its own norms, so heads and bags do not meet.
    """
    norms = a.abs().sum(-2).amax(-1) * a.abs().sum(-1).amax(-1)  # (...)
    z = a.transpose(-1, -2) / norms[..., None, None]
    eye = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
    for _ in range(iterations):
        az = a @ z
        z = 0.25 * z @ (13 * eye - az @ (15 * eye - az @ (7 * eye - az)))
    return z


def nystroem(q: Tensor, k: Tensor, v: Tensor, landmarks: int, iterations: int) -> Tensor:
    r"""Attention of all to all through m landmarks, in time and memory O(N m) and O(N).

    .. math:: \mathrm{softmax}(q \tilde k^\top)\;[\mathrm{softmax}(\tilde q \tilde k^\top)]^{+}\;\mathrm{softmax}(\tilde q k^\top)\,v

    The outer factors are fused attention calls, so neither N x m matrix is kept for the way back. With m >= N landmarks
    the product is the exact attention, which is computed as such.
    """
    if q.shape[-2] <= landmarks:
        return attend(q, k, v)
    q_few, k_few = segment_means(q, landmarks), segment_means(k, landmarks)  # (B, heads, m, d)
    gathered = attend(q_few, k, v)  # (B, heads, m, d)
    return attend(q, k_few, _inner(q_few, k_few, gathered, iterations))


def _inner(q_few: Tensor, k_few: Tensor, gathered: Tensor, iterations: int) -> Tensor:
    """Pseudo-inverse times the gathered values, in at least float32 also under bfloat16, because the iteration is sensitive to rounding."""
    with torch.autocast(q_few.device.type, enabled=False):
        wide = torch.promote_types(q_few.dtype, torch.float32)
        core = _core(q_few.to(wide), k_few.to(wide))
        return (pseudo_inverse(core, iterations) @ gathered.to(wide)).to(gathered.dtype)


@torch.no_grad()
def nystroem_row(q: Tensor, k: Tensor, landmarks: int, iterations: int) -> Tensor:
    """Attention of the first token of :func:`nystroem`, averaged over heads (B, n), for maps.

    The approximation may give small negative weights; they count as zero, and the row sums to 1.
    """
    if q.shape[-2] <= landmarks:
        return attention_weights(q[..., :1, :], k)[:, 0]
    q_few, k_few = segment_means(q, landmarks), segment_means(k, landmarks)
    scale = q.shape[-1] ** -0.5
    first = (q[..., :1, :] @ k_few.transpose(-1, -2) * scale).softmax(-1) @ pseudo_inverse(
        _core(q_few, k_few), iterations
    )
    row = q.new_zeros(q.shape[0], q.shape[-2])
    for head in range(q.shape[1]):  # one head at a time: m x n numbers
        far = (q_few[:, head] @ k[:, head].transpose(-1, -2) * scale).softmax(-1)
        row += (first[:, head] @ far).squeeze(-2)
    row = row.clamp_min(0)
    return row / row.sum(-1, keepdim=True).clamp_min(torch.finfo(row.dtype).tiny)


def _core(q_few: Tensor, k_few: Tensor) -> Tensor:
    return (q_few @ k_few.transpose(-1, -2) * q_few.shape[-1] ** -0.5).softmax(-1)

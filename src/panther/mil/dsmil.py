"""DSMIL: the most telling patch of each output, and attention of all patches to it."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from panther.errors import InputError
from panther.mil._attention import attend, attention_weights
from panther.mil._base import Given, Network, check_sizes, networks, reduction
from panther.types import SlideEmbedding


def inverse_scale(h: Tensor, mask: Tensor | None = None) -> Tensor:
    r"""One over the root mean square of each bag h (B, N, h): :math:`1 / \sqrt{\operatorname{mean}_{n,j} h_{nj}^2}`, (B,).

    One number a bag: patches keep their sizes relative to each other (a LayerNorm of each patch would take them away, and with
    them most needles). With it logits no longer grow with the scale of the features.
    """
    square = torch.linalg.vector_norm(h, dim=-1).square()  # (B, N)
    mean = square.mean(-1) if mask is None else (square * mask).sum(-1) / mask.sum(-1)
    return (mean / h.shape[-1]).clamp_min(1e-12) ** -0.5


def scaled_linear(h: Tensor, layers: Sequence[nn.Linear], scale: Tensor | None) -> Sequence[Tensor]:
    """Linear layers of ``scale * h``: read h once for all of them, the scale (B,) on the weights instead of a second copy of the bag."""
    weight = torch.cat([layer.weight for layer in layers]).T
    bias = torch.cat([layer.bias for layer in layers])
    every = h @ weight + bias if scale is None else torch.baddbmm(bias, h, weight * scale[:, None, None])
    return every.split([layer.out_features for layer in layers], dim=-1)


@networks.register(
    "dsmil",
    permutation_invariant=True,
    duplication_invariant=True,
    differentiable=True,
    needs_prototypes=False,
    options=("hidden", "attention", "normalise", "dropout"),
    variants=({"hidden": 16, "attention": 12}, {"hidden": 16, "attention": 12, "normalise": False}),
)
class DSMIL(Network):
    r"""Dual-stream multiple instance learning, one critical patch and one token an output c.

    .. math:: h_n = \mathrm{ReLU}(W x_n) / \rho,\quad
              s_{nc} = w_c^\top h_n + \beta_c,\quad m_c = \arg\max_n s_{nc},\quad
              u_{nc} = \mathrm{softmax}_n\big(q(h_n)^\top q(h_{m_c}) / \sqrt{a}\big),\quad
              b_c = \sum_n u_{nc}\, v(h_n)

    The instance stream predicts :math:`\max_n s_{nc}` (`aux["instance_logits"]`), the bag stream a linear function of all :math:`b_c`; the
    prediction is their mean and both are trained (eq. 7; see :class:`panther.mil.MILModel`). Li, Li, Eliceiri: Dual-stream multiple instance
    learning network for whole slide image classification with self-supervised contrastive learning, CVPR 2021, section 3.2.

    The scale :math:`\rho` of the bag, which the paper does not have, is the root mean square of all its h: without it every logit grows with the
    scale of the features, and for survival large logits are fatal (docs/concepts/mil.md, "DSMIL and survival").

    Parameters
    ----------
    given : Given
        Features before it, and the number of outputs behind it.
    hidden, attention : int
        Width of h and v, and of q.
    normalise : bool
        False leaves out the scale, as the paper does.
    dropout : float
        After the first layer and before v.
    """

    def __init__(
        self,
        given: Given,
        hidden: int = 512,
        attention: int = 128,
        normalise: bool = True,
        dropout: float = 0.25,
    ) -> None:
        super().__init__()
        check_sizes("dsmil", dropout, hidden=hidden, attention=attention)
        if not isinstance(normalise, bool):
            raise InputError(f"The setting 'normalise' of 'dsmil' is {normalise!r}; expected true or false.")
        self.dim_in, self.token_count, self.out_dim = given.dim_in, given.n_outputs, given.n_outputs * hidden
        self.normalise = normalise
        self.reduce = reduction(given.dim_in, hidden, dropout)
        self.instance = nn.Linear(hidden, given.n_outputs)
        self.query = nn.Linear(hidden, attention)
        self.query_out = nn.Sequential(nn.ReLU(), nn.Linear(attention, attention), nn.Tanh())
        self.dropout = nn.Dropout(dropout)
        self.value = nn.Linear(hidden, hidden)

    def embed(self, x: Tensor, mask: Tensor | None, with_assignment: bool) -> SlideEmbedding:
        """Find the critical patches, then look at all patches from there."""
        h = self.reduce(x)  # (B, N, h)
        scale = inverse_scale(h, mask) if self.normalise else None
        scores, q = scaled_linear(h, (self.instance, self.query), scale)  # (B, N, k), (B, N, a)
        if mask is not None:
            scores = scores.masked_fill(~mask.unsqueeze(-1), float("-inf"))
        largest, critical = scores.max(-2)  # (B, k) each
        q = self.query_out(q).unsqueeze(1)  # (B, 1, N, a)
        v = scaled_linear(self.dropout(h), (self.value,), scale)[0].relu().unsqueeze(1)  # (B, 1, N, h)
        at = critical[:, None, :, None].expand(-1, -1, -1, q.shape[-1])
        q_critical = q.gather(-2, at)  # (B, 1, k, a)
        tokens = attend(q_critical, q, v, mask).squeeze(1)  # (B, k, h)
        assignment = attention_weights(q_critical, q, mask).transpose(-1, -2) if with_assignment else None
        return SlideEmbedding(
            tokens.flatten(-2), tokens, assignment, {"instance_logits": largest, "critical": critical}
        )

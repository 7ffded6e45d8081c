"""DSMIL: the most telling patch of each output, and attention of all patches to it."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from panther.mil._attention import masked_softmax
from panther.mil._base import Network, NetworkInputs, check_sizes, check_switches, networks, reduction
from panther.types import SlideEmbedding


class _Reading(torch.autograd.Function):
    """Three readings of bags h (B, N, h): a product with W (a, h), their mean square, patches weighed by (B, N) or (B, 1), and some of their rows.

    The gradient of each is as large as the bag. Written into one place they cost a product and one pass over memory; torch by
    itself would make five tensors of that size and add them up.
    """

    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: Tensor, rows: Tensor, patches: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        at = rows.unsqueeze(-1).expand(-1, -1, h.shape[-1])
        ctx.save_for_backward(h, weight, at, patches)
        norms = torch.linalg.vector_norm(h, dim=-1, dtype=patches.dtype)  # (B, N)
        return h @ weight.T, (norms.square() * patches).sum(-1), h.gather(-2, at)  # (B, N, a), (B,), (B, k, h)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, product: Tensor, square: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, None, None]:
        h, weight, at, patches = ctx.saved_tensors
        whole = h * (2 * square[:, None] * patches).to(h.dtype).unsqueeze(-1)
        flat = product.flatten(0, 1)  # (B N, a)
        whole.view(-1, h.shape[-1]).addmm_(flat, weight)
        return whole.scatter_add_(-2, at, rows), flat.T @ h.flatten(0, 1), None, None


def read(h: Tensor, weight: Tensor, rows: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    r"""Of bags h: :math:`h W^\top` (B, N, a), the root mean square :math:`\rho = \sqrt{\operatorname{mean}_{n,j} h_{nj}^2}` (B,), ``rows`` (B, k, h).

    One number rho a bag: patches keep their sizes relative to each other (a LayerNorm of each patch would take them away, and with
    them most needles). With it logits no longer grow with the scale of the features.
    """
    wide = torch.promote_types(h.dtype, torch.float32)
    real = h.new_ones(len(h), 1, dtype=wide) if mask is None else mask.to(wide)  # (B, 1) or (B, N)
    count = h.shape[1] if mask is None else real.sum(-1, keepdim=True)
    product, square, critical = _Reading.apply(h.contiguous(), weight.to(h.dtype), rows, real / (count * h.shape[-1]))
    return product, square.clamp_min(1e-12).sqrt(), critical


def rectified(product: Tensor, bias: Tensor, rho: Tensor) -> Tensor:
    r""":math:`\rho\,\mathrm{ReLU}(W h / \rho + b) = \mathrm{ReLU}(W h + \rho b)`, in place: nothing large is divided by rho (B, 1, 1)."""
    return product.add_(rho * bias).relu_()


@networks.register(
    "dsmil",
    title="DSMIL",
    permutation_invariant=True,
    duplication_invariant=True,
    differentiable=True,
    needs_prototypes=False,
    options=("hidden", "attention", "normalise", "value_layer", "dropout"),
    variants=(
        {"hidden": 16, "attention": 12},
        {"hidden": 16, "attention": 12, "normalise": False, "value_layer": False},
    ),
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
    inputs : NetworkInputs
        Features before it, and the number of outputs behind it.
    hidden, attention : int
        Width of h and v, and of q.
    normalise : bool
        False leaves out the scale, as the paper does.
    value_layer : bool
        False takes h for v, as the published program does by default.
    dropout : float
        After the first layer and before v.
    """

    def __init__(
        self,
        inputs: NetworkInputs,
        hidden: int = 512,
        attention: int = 128,
        normalise: bool = True,
        value_layer: bool = True,
        dropout: float = 0.25,
    ) -> None:
        super().__init__()
        check_sizes("dsmil", dropout, hidden=hidden, attention=attention)
        check_switches("dsmil", normalise=normalise, value_layer=value_layer)
        self.dim_in, self.token_count, self.out_dim = inputs.dim_in, inputs.n_outputs, inputs.n_outputs * hidden
        self.normalise = normalise
        self.reduce = reduction(inputs.dim_in, hidden, dropout)
        self.instance = nn.Linear(hidden, inputs.n_outputs)
        self.query = nn.Linear(hidden, attention)
        self.query_out = nn.Sequential(nn.Linear(attention, attention), nn.Tanh())
        self.dropout = nn.Dropout(dropout)
        self.value = nn.Linear(hidden, hidden) if value_layer else None

    def embed(self, x: Tensor, mask: Tensor | None, with_assignment: bool) -> SlideEmbedding:
        """Find the critical patches, then look at all patches from there."""
        h = self.reduce(x)  # (B, N, h), not yet divided by rho
        critical = self.critical(h.detach(), mask)  # (B, k)
        product, rho, h_critical = read(h, self.query.weight, critical, mask)
        rho = rho[:, None, None] if self.normalise else torch.ones_like(rho)[:, None, None]
        largest = (h_critical / rho * self.instance.weight).sum(-1) + self.instance.bias  # (B, k)
        q = self.query_out(rectified(product, self.query.bias, rho) / rho)  # (B, N, a)
        v = (
            h if self.value is None else self._values(self.value, self.dropout(h), rho)
        )  # (B, N, h), rho times the paper's v
        q_critical = q.gather(-2, critical.unsqueeze(-1).expand(-1, -1, q.shape[-1])) * q.shape[-1] ** -0.5  # (B, k, a)
        # k is small: the k x N weights are written out, which takes fewer passes over q than a fused call
        weights = masked_softmax(q_critical @ q.transpose(-1, -2), None if mask is None else mask.unsqueeze(-2))
        tokens = weights @ v / rho  # (B, k, h)
        assignment = weights.detach().transpose(-1, -2) if with_assignment else None
        return SlideEmbedding(
            tokens.flatten(-2), tokens, assignment, {"instance_logits": largest, "critical": critical}
        )

    def _values(self, value: nn.Linear, h: Tensor, rho: Tensor) -> Tensor:
        """Values (B, N, h) times rho; the bias differs from bag to bag, for one bag the product itself can add it."""
        weight, bias = value.weight, value.bias
        if len(h) == 1:
            return functional.linear(h, weight, (rho * bias).flatten().to(weight.dtype)).relu_()
        return rectified(functional.linear(h, weight), bias, rho)

    @torch.no_grad()
    def critical(self, h: Tensor, mask: Tensor | None) -> Tensor:
        """Patch (B, k) with the largest score; neither a common scale nor the bias decides which."""
        scores = functional.linear(h, self.instance.weight)  # (B, N, k)
        return (scores if mask is None else scores.masked_fill(~mask.unsqueeze(-1), float("-inf"))).argmax(-2)

"""AttnMISL: patches are grouped by the cohort's prototypes; the groups' means are weighed by attention."""

from itertools import pairwise

import torch
from torch import Tensor, nn

from panther.mil._attention import AttentionScore, masked_softmax
from panther.mil._base import Network, NetworkInputs, check_sizes, networks, reduction
from panther.statistics import nearest
from panther.types import Projection, SlideEmbedding


def group_means(h: Tensor, groups: Tensor) -> tuple[Tensor, Tensor]:
    """Means (B, C, h) of h (B, N, h) in groups (B, N, C) of zeros and ones, and the groups' sizes (B, C); zeros for an empty group."""
    sizes = groups.sum(-2)  # (B, C)
    return groups.transpose(-1, -2) @ h / sizes.clamp_min(1).unsqueeze(-1), sizes


@networks.register(
    "attnmisl",
    title="AttnMISL",
    permutation_invariant=True,
    duplication_invariant=True,
    differentiable=True,
    needs_prototypes=True,
    revision=2,  # 1 had two layers of 512 and dropout everywhere
    options=("hidden", "layers", "attention", "out", "gated", "dropout"),
    variants=({"hidden": 16, "attention": 12, "out": 8}, {"hidden": 16, "layers": 2, "attention": 12, "gated": True}),
)
class AttnMISL(Network):
    r"""Attention-guided deep multiple instance survival learning.

    .. math:: g(n) = \arg\min_c \|x_n - p_c\|,\quad
              u_c = \operatorname{mean}_{n: g(n) = c} f(x_n),\quad
              a = \mathrm{softmax}_{c:\, u_c \text{ not empty}}\big(w^\top \tanh(V u_c)\big),\quad
              z = \rho\Big(\sum_c a_c u_c\Big)

    f is the siamese network, one layer with the same weights for every group, and :math:`\rho` a layer with dropout. Yao et al.: Whole slide images
    based cancer survival prediction using attention guided deep multiple instance learning networks, Medical Image Analysis 2020, section 3; the
    sizes are those of the authors' program. The paper clusters each patient by itself; here, as in the PANTHER paper, the groups are the
    cohort's prototypes, so that group c means the same in every slide.

    Parameters
    ----------
    inputs : NetworkInputs
        Features before it, and the prototypes; features pass through the prototypes' projection only to find their group.
    hidden, layers : int
        Width of f and the number of its layers.
    attention, out : int
        Width of the attention's hidden layer, and of z.
    gated : bool
        Whether the attention has a gate, as in ABMIL.
    dropout : float
        Of z.
    """

    def __init__(
        self,
        inputs: NetworkInputs,
        hidden: int = 64,
        layers: int = 1,
        attention: int = 32,
        out: int = 32,
        gated: bool = False,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        check_sizes("attnmisl", dropout, hidden=hidden, layers=layers, attention=attention, out=out)
        assert inputs.prototypes is not None
        self.dim_in, self.out_dim = inputs.dim_in, out
        projection = inputs.prototypes.projection
        self.normalise = projection.normalise
        # buffers: part of the module's state and of checkpoints
        self.register_buffer("centroids", inputs.prototypes.centroids.clone())
        self.register_buffer("projection_mean", None if projection.mean is None else projection.mean.clone())
        self.register_buffer("projection_basis", None if projection.basis is None else projection.basis.clone())
        widths = [inputs.dim_in, *[hidden] * layers]
        self.siamese = nn.Sequential(
            *(nn.Sequential(nn.Linear(a, b), nn.ReLU(inplace=True)) for a, b in pairwise(widths))
        )
        self.attention = AttentionScore(hidden, attention, gated, dropout=0.0)
        self.rho = reduction(hidden, out, dropout)

    def embed(self, x: Tensor, mask: Tensor | None, with_assignment: bool) -> SlideEmbedding:
        """Group, average, weigh."""
        groups = self.groups(x)  # (B, N, C)
        if mask is not None:
            groups = groups * mask.unsqueeze(-1).to(groups)
        means, sizes = group_means(self.siamese(x), groups)  # (B, C, h)
        weights = masked_softmax(self.attention(means), sizes > 0)  # (B, C)
        vector = self.rho((weights.unsqueeze(-2) @ means).squeeze(-2))
        share = weights.detach() / sizes.clamp_min(1)  # what one patch of a group has of its group's weight
        assignment = groups @ share.unsqueeze(-1) if with_assignment else None  # (B, N, 1)
        return SlideEmbedding(vector, None, assignment, {"group_attention": weights.detach(), "mass": sizes})

    @torch.no_grad()
    def groups(self, x: Tensor) -> Tensor:
        """Nearest prototype of each patch, one-hot (B, N, C)."""
        mean, basis = self.projection_mean, self.projection_basis
        projection = Projection(
            self.normalise,
            mean if isinstance(mean, Tensor) else None,
            basis if isinstance(basis, Tensor) else None,
        )
        centroids = self.get_buffer("centroids").to(x.dtype)
        origin = centroids.mean(0)
        z = projection(x) - origin  # near the origin products keep their digits
        return nearest(centroids - origin)(z, None)[0]

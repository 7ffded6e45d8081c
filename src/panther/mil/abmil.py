"""ABMIL: a weighted mean of the patches, the weights learned by (gated) attention."""

from torch import Tensor

from panther.mil._attention import AttentionScore, masked_softmax
from panther.mil._base import Network, NetworkInputs, check_sizes, networks, reduction
from panther.types import SlideEmbedding


@networks.register(
    "abmil",
    title="ABMIL",
    permutation_invariant=True,
    duplication_invariant=True,
    differentiable=True,
    needs_prototypes=False,
    options=("hidden", "attention", "gated", "dropout", "feature_dropout"),
    variants=({"hidden": 16, "attention": 12}, {"hidden": 16, "attention": 12, "gated": False, "feature_dropout": 0.0}),
)
class ABMIL(Network):
    r"""Attention-based multiple instance learning.

    .. math:: h_n = \mathrm{ReLU}(W x_n),\quad
              a = \mathrm{softmax}_n\big(w^\top (\tanh(V h_n) \odot \sigma(U h_n))\big),\quad
              z = \sum_n a_n h_n

    Ilse, Tomczak, Welling: Attention-based deep multiple instance learning, ICML 2018, eq. 7 to 9.

    Parameters
    ----------
    inputs : NetworkInputs
        Features before it.
    hidden, attention : int
        Width of h, and of the attention's hidden layer.
    gated : bool
        False leaves out the gate U (eq. 8).
    dropout : float
        After h and inside the attention.
    feature_dropout : float, optional
        After h, where it is another one.
    """

    def __init__(
        self,
        inputs: NetworkInputs,
        hidden: int = 512,
        attention: int = 384,
        gated: bool = True,
        dropout: float = 0.25,
        feature_dropout: float | None = None,
    ) -> None:
        super().__init__()
        check_sizes("abmil", dropout, hidden=hidden, attention=attention)
        after = dropout if feature_dropout is None else feature_dropout
        check_sizes("abmil", after)
        self.dim_in, self.out_dim = inputs.dim_in, hidden
        self.reduce = reduction(inputs.dim_in, hidden, after)
        self.attention = AttentionScore(hidden, attention, gated, dropout)

    def embed(self, x: Tensor, mask: Tensor | None, with_assignment: bool) -> SlideEmbedding:
        """Average the patches by their attention."""
        h = self.reduce(x)  # (B, N, h)
        weights = masked_softmax(self.attention(h), mask)  # (B, N)
        vector = (weights.unsqueeze(-2) @ h).squeeze(-2)  # (B, h)
        return SlideEmbedding(vector, None, weights.detach().unsqueeze(-1) if with_assignment else None)

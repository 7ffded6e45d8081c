"""What an optional block of PANTHER's embedding is."""

from torch import Tensor, nn

from panther.mixture import EMSettings, MixtureFit
from panther.types import Places, Prototypes, Rows


class EmbeddingBlock(nn.Module):
    """Numbers that follow the mixture's, read from the fit of one bag."""

    needs_places: bool = False  # whether it reads where patches lie
    needs_scores: bool = False  # whether it reads the patches' scores, log p under the mixture that EM starts from

    def __init__(self, prototypes: Prototypes, settings: EMSettings) -> None:
        super().__init__()

    def columns(self) -> list[tuple[int, str, int]]:
        """Prototype, statistic and dimension of each number, -1 where it does not apply."""
        raise NotImplementedError

    def parts(self) -> list[int]:
        """How many of the numbers are scaled together, from left to right; all of them, where the block does not say otherwise."""
        return [len(self.columns())]

    def forward(self, fit: MixtureFit, x: Rows, places: Places | None) -> Tensor:
        """Read numbers (D,) of a bag (N, d), whose fit has kept its assignment, and its scores where they are needed."""
        raise NotImplementedError

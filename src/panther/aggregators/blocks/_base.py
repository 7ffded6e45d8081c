"""What an optional block of PANTHER's embedding is."""

from torch import Tensor, nn

from panther.mixture import EMSettings, MixtureFit
from panther.types import Places, Prototypes, Rows

Columns = list[tuple[int, str, int]]  # prototype, statistic and dimension of each number, -1 where it does not apply


class EmbeddingBlock(nn.Module):
    """Numbers that follow the mixture's, read from the fit of one bag."""

    needs_places: bool = False  # whether it reads where patches lie
    needs_scores: bool = False  # whether it reads the patches' scores, log p under the mixture that EM starts from

    def __init__(self, prototypes: Prototypes, settings: EMSettings) -> None:
        super().__init__()
        self.count, self.dim = prototypes.centroids.shape

    @staticmethod
    def width(count: int, dim: int) -> int:
        """How many numbers it has with C prototypes of d features; whoever recognises an embedding by its width asks it for many C."""
        raise NotImplementedError

    @staticmethod
    def layout(count: int, dim: int) -> list[Columns]:
        """Columns of what is scaled together, from left to right."""
        raise NotImplementedError

    def columns(self) -> Columns:
        """Prototype, statistic and dimension of each number, -1 where it does not apply."""
        return [column for part in self.layout(self.count, self.dim) for column in part]

    def parts(self) -> list[int]:
        """How many of the numbers are scaled together, from left to right."""
        return [len(part) for part in self.layout(self.count, self.dim)]

    def forward(self, fit: MixtureFit, x: Rows, places: Places | None) -> Tensor:
        """Read numbers (D,) of a bag (N, d), whose fit has kept its assignment, and its scores where they are needed."""
        raise NotImplementedError

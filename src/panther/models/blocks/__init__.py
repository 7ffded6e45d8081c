"""What the numbers of a row are: representations of a slide, alone or side by side, and how they are scaled together."""

from panther.models.blocks.block import CONCAT, GIVEN, UNMADE, Block, columns_of, needs_prototypes, reads_coordinates

__all__ = ["CONCAT", "GIVEN", "UNMADE", "Block", "columns_of", "needs_prototypes", "reads_coordinates"]

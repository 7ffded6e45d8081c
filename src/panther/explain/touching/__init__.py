"""Which prototypes lie beside which: counted on slides, told in words, written as tables."""

from panther.explain.touching.count import Touching, no_touching, touching
from panther.explain.touching.words import neighbour_sentences

__all__ = ["Touching", "neighbour_sentences", "no_touching", "touching"]

"""Vectors of slides or patients that a slide encoder made elsewhere (TITAN, PRISM, CHIEF ...), in whatever layout they lie."""

from panther.storage.slide_vectors._base import SlideVectors
from panther.storage.slide_vectors.bags import split_key, vector_bags
from panther.storage.slide_vectors.read import VECTOR_SUFFIXES, read_slide_vectors

__all__ = ["VECTOR_SUFFIXES", "SlideVectors", "read_slide_vectors", "split_key", "vector_bags"]

"""Embeddings of slides as they lie on disk: read back, opened without reading them, written as mixtures, and those of the published code."""

"""Embeddings of slides as they lie on disk: opened without reading them, and written as mixtures."""

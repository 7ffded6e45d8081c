"""Slides that are alike: distances between embeddings, an exact search with reasons, and how well neighbours share a label."""

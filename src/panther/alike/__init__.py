"""Slides and patients that are alike: distances between embeddings, an exact search, reasons, and how well neighbours share a label."""

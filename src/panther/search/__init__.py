"""Similar slides: distances between embeddings, an exact search with reasons, and retrieval scores."""

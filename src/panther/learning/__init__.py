"""From slide embeddings and a clinical table to predictions that a reviewer would believe."""

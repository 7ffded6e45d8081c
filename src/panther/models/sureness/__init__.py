"""How sure a model may be: what held-out patients taught about its probabilities, and where its training samples lay."""

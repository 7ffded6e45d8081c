"""How sure the models of a study are, and whether they keep what they promise."""

"""Files: the only place where they are opened."""

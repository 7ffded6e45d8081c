"""The cohort as points: who they are, where they lie, what colours them, and how two groups of them differ."""

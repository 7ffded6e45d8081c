"""The cohort as points: slides or patients, their positions, their colours, and the comparison of two groups."""

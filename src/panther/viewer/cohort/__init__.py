"""The cohort as points: slides or patients, their positions and colours."""

"""The viewer in the browser: slides, prototypes, cohort and study as the other commands left them on disk. It owns no mathematics."""

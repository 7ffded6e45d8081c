"""Is a study's task panoramic or a needle? Probes on what the whole slide says, against probes on what stands out of it."""

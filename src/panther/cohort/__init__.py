"""A cohort: clinical tables, endpoints, and who trains, validates and tests."""

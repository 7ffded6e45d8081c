"""A cohort: clinical tables, endpoints, covariates and splits."""

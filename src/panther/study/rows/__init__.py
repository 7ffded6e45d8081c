"""The rows of a study's table: methods on patches, vectors that somebody gave, and several of these side by side."""

from panther.study.rows.grid import (
    check_rows,
    encoders_of,
    is_given,
    is_of_patches,
    parts_of,
    reads_covariates,
    rows_of,
)

__all__ = [
    "check_rows",
    "encoders_of",
    "is_given",
    "is_of_patches",
    "parts_of",
    "reads_covariates",
    "rows_of",
]

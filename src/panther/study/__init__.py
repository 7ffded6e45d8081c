"""Studies: the file that says what is compared with what, its grid, jobs, results and templates."""

"""Work on the workers of a Dask cluster: one that runs already, one on this machine, or one of SLURM's jobs.

Dask hands out the work; inside each of its workers a guarded process does it (see :mod:`panther.workers`), so a file that crashes the
library that reads it costs one task there as well as here. Dask itself is imported when a cluster is asked for.
"""

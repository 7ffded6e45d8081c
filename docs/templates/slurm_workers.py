"""Ask SLURM for Dask workers, run a command on them, and give them back:

python slurm_workers.py panther embed features/ -p protos.safetensors -o slides.h5ad
"""

import subprocess
import sys

from dask_jobqueue import SLURMCluster

# Fill in these three lines.
PARTITION = "cpu"
JOB = {"cores": 16, "memory": "64GB", "walltime": "04:00:00"}
JOBS = 20  # at most

if __name__ == "__main__":
    # one Dask worker per job, which ends in order five minutes before SLURM would kill it
    ending = ["--lifetime", "235m", "--lifetime-stagger", "4m", "--memory-limit", "0"]  # memory is SLURM's business
    with SLURMCluster(queue=PARTITION, processes=1, worker_extra_args=ending, **JOB) as cluster:
        cluster.adapt(minimum_jobs=1, maximum_jobs=JOBS)
        sys.exit(subprocess.call([*sys.argv[1:], "--workers", cluster.scheduler_address]))

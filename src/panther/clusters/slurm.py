"""Workers in jobs of SLURM, asked for by dask-jobqueue."""

import logging
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from panther.clusters.executor import GPU
from panther.errors import InputError, suggestion

logger = logging.getLogger(__name__)

WALLTIME = r"(?:\d+-)?\d{1,3}(?::[0-5]\d){1,2}"  # of SLURM: minutes:seconds, hours:minutes:seconds, with days-
DURATION = r"\d+(?:\.\d+)?\s*(?:s|m|h|d)"  # of Dask
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
QUIET = {"dashboard": False, "dashboard_address": ":0"}
MARGIN = 300  # seconds before the wall-time at which a worker ends by itself

Count = Annotated[int, Field(ge=1, strict=True)]


class SlurmOptions(BaseModel):
    """What is asked of SLURM: jobs of one Dask worker each."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cores: Count  # per job
    memory: Annotated[str, Field(pattern=r"^\d+(\.\d+)?\s*[KMGT]i?B$")]  # per job, e.g. 32GB
    walltime: Annotated[str, Field(pattern=rf"^{WALLTIME}$")]  # per job, e.g. 04:00:00
    partition: str | None = None
    account: str | None = None
    gpus: Annotated[int, Field(ge=0, strict=True)] = 0  # per job
    lifetime: Annotated[str, Field(pattern=rf"^{DURATION}$")] | None = None  # a worker ends in order after it ...
    stagger: Annotated[str, Field(pattern=rf"^{DURATION}$")] | None = (
        None  # ... a little earlier or later, not all at once
    )
    min_jobs: Annotated[int, Field(ge=0, strict=True)] = 0
    max_jobs: Count = 10
    interface: str | None = None  # network that the nodes see each other on, e.g. ib0
    directives: tuple[str, ...] = ()  # further lines of #SBATCH, e.g. --qos=long
    setup: tuple[str, ...] = ()  # lines of the shell before the worker, e.g. module load, conda activate
    python: str | None = None  # Python of the nodes, where it lies elsewhere than here
    logs: Path | None = None  # folder of the jobs' output

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.min_jobs > self.max_jobs:
            raise ValueError(f"min_jobs: {self.min_jobs} is more than max_jobs: {self.max_jobs}")
        if self.lifetime and _seconds_of(self.lifetime) >= self.seconds:
            raise ValueError(f"lifetime: {self.lifetime} is not shorter than walltime: {self.walltime}")
        return self

    @classmethod
    def parse(cls, content: Mapping[str, Any], source: str = "The options for SLURM") -> Self:
        """Check the keys and values of a file of options."""
        try:
            return cls.model_validate(dict(content))
        except ValidationError as error:
            raise InputError(f"{source}: {_explained(error)}") from error

    @property
    def seconds(self) -> int:
        """The wall-time."""
        days, _, clock = self.walltime.rpartition("-")
        parts = [int(part) for part in clock.split(":")]
        hours, minutes, seconds = parts if len(parts) == 3 else (0, *parts)
        return 86400 * int(days or 0) + 3600 * hours + 60 * minutes + seconds

    @property
    def most_tasks(self) -> int:
        """Tasks that run at the same time when all jobs are there."""
        return self.max_jobs * self.cores

    @property
    def words(self) -> str:
        """One line about what is asked for."""
        gpus = f", {self.gpus} GPU{'s' if self.gpus > 1 else ''}" if self.gpus else ""
        jobs = str(self.max_jobs) if self.min_jobs == self.max_jobs else f"{self.min_jobs} to {self.max_jobs}"
        return f"{jobs} jobs of {self.cores} cores, {self.memory}{gpus}, {self.walltime}"

    def to_jobqueue(self) -> dict[str, Any]:
        """The same in dask-jobqueue's words. One Dask worker per job: its threads are processes of ours."""
        life = self.lifetime or f"{max(self.seconds - MARGIN, self.seconds // 2)}s"
        stagger = self.stagger or f"{min(MARGIN // 2, self.seconds // 10)}s"
        # memory is SLURM's business: Dask would pause a worker that uses what it was granted, and not see its processes
        extra = ["--memory-limit", "0", "--lifetime", life, "--lifetime-stagger", stagger]
        given = {
            "cores": self.cores,
            "memory": self.memory,
            "walltime": self.walltime,
            "processes": 1,
            "job_name": "panther",
            "queue": self.partition,
            "account": self.account,
            "interface": self.interface,
            "python": self.python,
            "log_directory": None if self.logs is None else str(self.logs),
            "job_script_prologue": list(self.setup),
            "job_extra_directives": [*([f"--gres=gpu:{self.gpus}"] if self.gpus else []), *self.directives],
            "worker_extra_args": [*extra, *(["--resources", f"{GPU}={self.gpus}"] if self.gpus else [])],
        }
        return {name: value for name, value in given.items() if value is not None}


@contextmanager
def slurm_cluster(options: SlurmOptions) -> Iterator[Any]:
    """A scheduler here, and jobs of SLURM for its workers; they end with it."""
    try:
        from dask_jobqueue import SLURMCluster
    except ImportError as error:
        raise InputError(
            "`cluster=slurm` needs dask-jobqueue; install it with: pip install 'panther-wsi[slurm]'."
        ) from error
    if shutil.which("sbatch") is None:
        raise InputError(
            "There is no sbatch here, so SLURM cannot be asked for jobs; run the command on a login node, or give the address of a Dask scheduler."
        )
    with SLURMCluster(**options.to_jobqueue(), scheduler_options=QUIET, name="panther") as cluster:
        script = cluster.job_script()
        logger.debug("%s", script)  # shown with -v
        _refuse_what_slurm_refuses(script)
        logger.info("Asking SLURM for %s.", options.words)
        # also where the number is fixed: a job that has come to its end is followed by another
        cluster.adapt(minimum_jobs=options.min_jobs, maximum_jobs=options.max_jobs)
        yield cluster


def _refuse_what_slurm_refuses(script: str) -> None:
    """Have SLURM check the job before anything waits for it: dask-jobqueue would ask again and again."""
    checked = subprocess.run(["sbatch", "--test-only"], input=script, capture_output=True, text=True, check=False)
    if checked.returncode:
        said = (checked.stderr or checked.stdout).strip().splitlines()
        raise InputError(
            f"SLURM refuses these jobs ({said[-1] if said else 'without a word'}); check the options of `cluster=slurm`."
        )


def _explained(error: ValidationError) -> str:
    """One problem, a mistyped key before all others."""
    problems = sorted(error.errors(), key=lambda problem: problem["type"] != "extra_forbidden")
    problem = problems[0]
    where = ".".join(map(str, problem["loc"]))
    message = problem["msg"].removeprefix("Value error, ").rstrip(".")
    if problem["type"] == "extra_forbidden":
        message = f"there is no such key; {suggestion(where, [*SlurmOptions.model_fields])}"
    elif problem["type"] == "missing":
        message = "is missing"
    elif where in EXAMPLES:
        message = f"expected something like {EXAMPLES[where]}, not {problem['input']!r}"
    elif where:
        message = f"{message.replace('Input should be', 'expected')}, not {problem['input']!r}"[:200]
    return (f"{where}: " if where else "") + f"{message}."


EXAMPLES = {"memory": "32GB", "walltime": "04:00:00", "lifetime": "55m", "stagger": "4m"}


def _seconds_of(duration: str) -> float:
    found = re.fullmatch(r"([\d.]+)\s*([smhd])", duration)
    assert found is not None
    return float(found[1]) * SECONDS[found[2]]

"""Work on the workers of a Dask cluster: one that runs already, or one in jobs of SLURM. Dask is imported when a cluster is used.

Tasks run in the Dask workers. A worker that dies is replaced by its nanny and its items run again elsewhere; an item that kills every worker
is named (`allowed-failures` of Dask), and so is a read that does not end, where a worker has one thread.
"""

import logging
import multiprocessing
import os
import pickle
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import chdir, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from panther.engine import Pool, WorkerLostError, attempt_and_pickle
from panther.errors import InputError, first_problem, format_problem
from panther.machine import enable_read_limit, limit_cores, read_limit
from panther.plain_yaml import read_yaml
from panther.registry import PLUGINS, load_plugins
from panther.version import __version__

logger = logging.getLogger(__name__)

GPU = "GPU"  # resource that workers with a GPU announce: dask worker ... --resources GPU=1
SHARE = 1 / 8  # of a GPU: small tasks are bound by launching kernels, and several side by side keep it busy
ANSWER = 10  # seconds that a scheduler has to answer
FIRST_WORKER = 60  # seconds that a scheduler may be without any worker
REFRESH = 10.0  # seconds between two requests for the list of workers


class ClusterLostError(InputError):
    """The scheduler is gone: the remaining items cannot be computed."""


def placement(threads: Mapping[str, int], gpus: Collection[str], gpu: float) -> dict[str, Any]:
    """Arguments for Dask: work for (a share of) a GPU goes where one is, other work to the other workers, if there are any."""
    if gpu:
        return {"resources": {GPU: gpu}}
    others = [address for address in threads if address not in gpus]
    return {"workers": others, "allow_other_workers": True} if others and gpus else {}


@dataclass(eq=False)
class DaskPool(Pool):
    """Sends tasks to the workers of a client, with ``gpu`` to those that announce one; ``whole`` tasks keep a network, and take all of a GPU."""

    seconds_per_task = 2e-3

    client: Any
    address: str
    gpu: bool = False
    whole: bool = False
    expected: int = 0  # tasks at once, where workers are still to come
    will_have_gpus: bool = False  # the same

    def __post_init__(self) -> None:
        self._refresh()

    @property
    def workers(self) -> int:  # type: ignore[override]
        """Tasks that run at the same time, as of a moment ago; clusters grow and shrink."""
        if time.monotonic() - self._refreshed > REFRESH:
            self._refresh()
        slots = self._gpus if self.gpu else self._threads
        count = len(slots) if self.whole else len(slots) / SHARE if self.gpu else sum(self._threads.values())
        return max(int(count), self.expected, 1)

    def for_work(self, *, gpu: bool, in_worker: bool = False) -> "DaskPool":
        """The same cluster for another kind of work."""
        return replace(self, gpu=gpu, whole=in_worker)

    @property
    def has_gpus(self) -> bool:
        """Whether workers announce a GPU, or will when they come."""
        return self.will_have_gpus or bool(self._gpus)

    @contextmanager
    def ship(self, function: Callable[[Any], Any]) -> Iterator[Any]:
        """Bring the pickled function to each worker once; as a task, which the scheduler repeats where the worker that has it dies."""
        payload = pickle.dumps(function)
        yield self.client.submit(bytes, payload, key=f"panther-function-{id(self)}-{time.monotonic_ns()}")
        with suppress(Exception):  # of a scheduler that is gone
            self.client.run(_release, payload, on_error="ignore")

    def submit(self, handle: Any, batch: Sequence[Any], threads: int, first: int) -> "Future[Any]":
        """Run the shipped function on a batch in some worker."""
        if self.client.status != "running":
            raise self._lost()
        workers = placement(self._threads, self._gpus, (1 if self.whole else SHARE) if self.gpu else 0)
        settings = (os.getcwd(), __version__, read_limit(), tuple(PLUGINS))
        return self.client.submit(
            _run_batch, handle, pickle.dumps(list(batch)), first, *settings, pure=False, **workers
        )

    def result(self, future: Any) -> Any:
        """Result of a task."""
        try:
            return future.result()
        except InputError:
            raise
        except ImportError as error:
            missing = error.name or error
            raise InputError(f"{self.address}: a worker cannot import {missing}; install the same packages") from error
        except Exception as error:
            if type(error).__name__ == "KilledWorker":
                raise WorkerLostError(
                    "each of its workers died; the file is damaged, or memory is too short"
                ) from error
            if isinstance(error, CancelledError) or self.client.status != "running":
                raise self._lost() from error
            raise

    def _lost(self) -> ClusterLostError:
        return ClusterLostError(f"{self.address}: the Dask scheduler went away; finished slides and jobs are kept")

    def _refresh(self) -> None:
        try:
            workers = self.client.sync(self.client.scheduler.identity)["workers"]
        except Exception as error:  # whatever a comm that closes raises
            raise self._lost() from error
        self._threads = {address: int(worker["nthreads"]) for address, worker in workers.items()}
        self._gpus = {address for address, worker in workers.items() if worker.get("resources", {}).get(GPU, 0) > 0}
        self._refreshed = time.monotonic()


def _run_batch(
    function: bytes, batch: bytes, first: int, folder: str, version: str, limit: float, plugins: Sequence[Path]
) -> bytes:
    """One task, in a Dask worker."""
    host = socket.gethostname()
    if version != __version__:
        raise InputError(f"{host}: found panther-wsi {__version__} in a worker, expected {version} as in this command")
    if not os.path.isdir(folder):
        raise InputError(f"{folder}: a worker on {host} does not see this folder")
    _prepare_worker(limit)
    with chdir(folder):  # that relative paths count from
        load_plugins(plugins)
        return attempt_and_pickle(_load(function), pickle.loads(batch), 1, first)


@lru_cache(maxsize=1)
def _prepare_worker(limit: float) -> None:
    import torch
    from distributed import get_worker

    threads = int(get_worker().state.nthreads)
    torch.set_num_threads(1)
    limit_cores(threads)  # others may work on this machine
    if threads == 1:  # the limit ends the process, and with it the work of its other threads
        enable_read_limit(limit)
    # Dask's workers are daemons, which Python forbids to start processes, as these may outlive them; ours end with their parent
    multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]


_functions: dict[bytes, Callable[[Any], Any]] = {}  # of this Dask worker, by their pickles; several commands may use it
_loading = threading.Lock()


def _load(payload: bytes) -> Callable[[Any], Any]:
    """The function of a command, unpickled once: it may keep a network between tasks."""
    with _loading:
        if payload not in _functions:
            _functions[payload] = pickle.loads(payload)
        return _functions[payload]


def _release(payload: bytes) -> None:
    """End what a function keeps between tasks, such as decoding processes."""
    function: Any = _functions.pop(payload, None)
    if hasattr(function, "close"):
        function.close()


@contextmanager
def open_cluster(workers: str) -> Iterator[DaskPool]:
    """Pool on a Dask cluster: at the address of a scheduler, or in jobs of SLURM by the options of a file (``slurm:OPTIONS.yaml``)."""
    is_slurm = workers.startswith("slurm:")
    options = SlurmOptions.read(Path(workers.removeprefix("slurm:"))) if is_slurm else None
    try:
        from distributed import Client
    except ImportError as error:
        raise InputError("a cluster requires Dask: pip install 'panther-wsi[cluster]'") from error
    with _quiet(), nullcontext() if options is None else slurm_cluster(options) as cluster:
        address = workers if cluster is None else cluster.scheduler_address
        try:
            client = Client(cluster or address, timeout=ANSWER, set_as_default=False)
        except (OSError, ValueError) as error:
            raise InputError(f"{address}: no Dask scheduler answers; start one: dask scheduler") from error
        try:
            if options is None:
                try:
                    client.wait_for_workers(1, timeout=FIRST_WORKER)
                except TimeoutError as error:
                    raise InputError(f"{address}: no workers; start some: dask worker {address}") from error
            tasks, has_gpus = (0, False) if options is None else (options.most_tasks, options.gpus > 0)
            yield DaskPool(client, address, expected=tasks, will_have_gpus=has_gpus)
        finally:
            with suppress(Exception):  # of a scheduler that is gone
                client.close(timeout=5)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Dask's log of connections that end off the screen, unless everything is shown."""
    names = [name for name in logging.root.manager.loggerDict if name.startswith("distributed")]  # each has a level
    before = {name: logging.getLogger(name).level for name in names}
    if not logging.getLogger("panther").isEnabledFor(logging.DEBUG):
        for name in names:
            logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)


QUIET = {"dashboard": False, "dashboard_address": ":0"}
MARGIN = 300  # seconds before the wall-time at which a worker ends by itself

Count = Annotated[int, Field(ge=1, strict=True)]
Memory = Annotated[str, Field(pattern=r"^\d+(\.\d+)?\s*[KMGT]i?B$", examples=["32GB"])]
# of SLURM: minutes:seconds, hours:minutes:seconds, with days-
WallTime = Annotated[str, Field(pattern=r"^(?:\d+-)?\d{1,3}(?::[0-5]\d){1,2}$", examples=["04:00:00"])]
Duration = Annotated[str, Field(pattern=r"^\d+(?:\.\d+)?\s*(?:s|m|h|d)$", examples=["55m"])]  # of Dask


class SlurmOptions(BaseModel):
    """Jobs of SLURM in which Dask workers run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cores: Count  # per job
    memory: Memory  # per job
    walltime: WallTime  # per job
    partition: str | None = None
    account: str | None = None
    gpus: Annotated[int, Field(ge=0, strict=True)] = 0  # per job
    lifetime: Duration | None = None  # a worker ends in order after it ...
    stagger: Duration | None = None  # ... a little earlier or later, not all at once
    min_jobs: Annotated[int, Field(ge=0, strict=True)] = 0
    max_jobs: Count = 10
    interface: str | None = None  # network that the nodes see each other on, e.g. ib0
    directives: tuple[str, ...] = ()  # further lines of #SBATCH, e.g. --qos=long
    setup: tuple[str, ...] = ()  # lines of the shell before the worker, e.g. module load, conda activate
    python: str | None = None  # Python of the nodes, where it lies elsewhere than here
    logs: Path | None = None  # folder of the jobs' output

    @classmethod
    def read(cls, path: Path) -> Self:
        """Options of a YAML file."""
        return cls.parse(read_yaml(path, "file of options for SLURM", "cores, memory, walltime"), str(path))

    @classmethod
    def parse(cls, content: Mapping[str, Any], source: str = "The options for SLURM") -> Self:
        """Check the keys and values of a file of options."""
        try:
            options = cls.model_validate(dict(content))
        except ValidationError as error:
            problem = first_problem(error)
            field = cls.model_fields.get(str(problem["loc"][0]))
            example = f"e.g. {field.examples[0]}" if field and field.examples else ""
            raise InputError(
                f"{source}: {format_problem(problem, known=cls.model_fields, expected=example)}"
            ) from error
        if options.min_jobs > options.max_jobs:
            raise InputError(
                f"{source}: min_jobs: found {options.min_jobs}, expected at most {options.max_jobs} (max_jobs)"
            )
        return options

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

    def to_jobqueue(self) -> dict[str, Any]:
        """The same as arguments of dask-jobqueue. One Dask worker per core: a crash costs the items of one core."""
        life = self.lifetime or f"{max(self.seconds - MARGIN, self.seconds // 2)}s"
        stagger = self.stagger or f"{min(MARGIN // 2, self.seconds // 10)}s"
        # memory is SLURM's business: Dask would pause a worker that uses what it was granted, and not see its processes
        extra = ["--memory-limit", "0", "--lifetime", life, "--lifetime-stagger", stagger]
        arguments = {
            "cores": self.cores,
            "memory": self.memory,
            "walltime": self.walltime,
            "processes": max(self.gpus, 1) if self.gpus else self.cores,
            "job_name": "panther",
            "queue": self.partition,
            "account": self.account,
            "interface": self.interface,
            "python": self.python,
            "log_directory": None if self.logs is None else str(self.logs),
            "job_script_prologue": list(self.setup),
            "job_extra_directives": [*([f"--gres=gpu:{self.gpus}"] if self.gpus else []), *self.directives],
            "worker_extra_args": [*extra, *(["--resources", f"{GPU}=1"] if self.gpus else [])],
        }
        return {name: value for name, value in arguments.items() if value is not None}


@contextmanager
def slurm_cluster(options: SlurmOptions) -> Iterator[Any]:
    """A scheduler here, and jobs of SLURM for its workers; they end with it."""
    try:
        from dask_jobqueue import SLURMCluster
    except ImportError as error:
        raise InputError("SLURM requires dask-jobqueue: pip install 'panther-wsi[slurm]'") from error
    if shutil.which("sbatch") is None:
        raise InputError("sbatch: not found; run the command on a login node of SLURM")
    with SLURMCluster(**options.to_jobqueue(), scheduler_options=QUIET, name="panther") as cluster:
        script = cluster.job_script()
        logger.debug("%s", script)  # shown with -v
        # before anything waits: dask-jobqueue would submit a job that SLURM refuses again and again
        check = subprocess.run(["sbatch", "--test-only"], input=script, capture_output=True, text=True, check=False)
        if check.returncode:
            answer = (check.stderr or check.stdout).strip().splitlines() or [f"exit code {check.returncode}"]
            raise InputError(f"SLURM refuses these jobs: {answer[-1]}")
        # also where the number is fixed: a job that has come to its end is followed by another
        cluster.adapt(minimum_jobs=options.min_jobs, maximum_jobs=options.max_jobs)
        yield cluster

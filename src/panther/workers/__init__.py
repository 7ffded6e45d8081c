"""Worker processes that may crash or hang on one file without taking the others with them.

The C libraries below (HDF5, OpenSlide, GLib) can be crashed, or sent into an endless loop, by a few wrong bytes in a file. So files
are read in worker processes (`pool`) that say what they read (`watch`).
"""

from panther.workers.batches import Batches
from panther.workers.memory import free_memory, give_freed_memory_back, is_spare, keep_freed_memory
from panther.workers.pool import (
    GuardedPool,
    UnguardedScriptError,
    end_server,
    process_context,
    share_server,
    start_early,
)
from panther.workers.side_by_side import side_by_side
from panther.workers.team import SentOnce, Team
from panther.workers.threads import allow_threads, cores, kernel_threads, limit_cores
from panther.workers.watch import READ_LIMIT, TaskLostError, begin_worker, in_worker, read_limit, reading

__all__ = [
    "READ_LIMIT",
    "Batches",
    "GuardedPool",
    "SentOnce",
    "TaskLostError",
    "Team",
    "UnguardedScriptError",
    "allow_threads",
    "begin_worker",
    "cores",
    "end_server",
    "free_memory",
    "give_freed_memory_back",
    "in_worker",
    "is_spare",
    "keep_freed_memory",
    "kernel_threads",
    "limit_cores",
    "process_context",
    "read_limit",
    "reading",
    "share_server",
    "side_by_side",
    "start_early",
]

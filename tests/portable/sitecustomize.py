"""Imitates Windows and macOS on Linux, in every process that has this folder on PYTHONPATH (`make portable`).

Processes start by spawn only; there is no GPU, no SIGALRM, no CPU affinity and no /dev/shm, and multiprocessing
may not fork. What it cannot imitate: files that are open cannot be replaced on Windows, and paths have drives there.
"""

import multiprocessing
import multiprocessing.context
import multiprocessing.heap
import os
import signal

os.environ["CUDA_VISIBLE_DEVICES"] = ""
for name in ("sched_getaffinity", "fork"):
    if hasattr(os, name):
        delattr(os, name)
for name in ("setitimer", "SIGALRM", "pthread_sigmask", "pthread_kill"):
    if hasattr(signal, name):
        delattr(signal, name)
multiprocessing.heap.Arena._dir_candidates = []  # type: ignore[attr-defined]
only_spawn = ["spawn"]
multiprocessing.get_all_start_methods = lambda: only_spawn  # type: ignore[method-assign]
multiprocessing.context._concrete_contexts.pop("fork", None)  # type: ignore[attr-defined]
multiprocessing.context._concrete_contexts.pop("forkserver", None)  # type: ignore[attr-defined]
multiprocessing.set_start_method("spawn", force=True)

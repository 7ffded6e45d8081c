"""Reads by a process that is no worker: in a helper process, which a damaged file may crash or hang.

The helper imports nothing of the script that uses it, unlike a worker of `multiprocessing`, so that such a script needs no guard.
"""

import atexit
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any, TypeVar

from panther.errors import InputError
from panther.workers import SentOnce, TaskLostError, begin_worker, in_worker, read_limit, watch
from panther.workers.pool import _done

R = TypeVar("R")
START = "import sys; sys.path[:] = {path!r}; from panther.storage.isolated import _serve; _serve({module!r})"

_lock = threading.Lock()
_helpers: dict[int, "subprocess.Popen[bytes]"] = {}  # by the number of this process: one that was forked has its own


def call_isolated(function: Callable[..., R], path: Any, *arguments: Any) -> R:
    """Value of ``function(path, *arguments)``, computed in a worker process or in the helper of this process.

    What may crash or hang in the function stands inside :func:`reading`. A file that does so is an `InputError` that names ``path``.
    """
    if in_worker():
        return function(path, *arguments)
    limit, task = read_limit(), pickle.dumps((function, (path, *arguments), {}))
    with _lock:
        helper = start_helper()
        try:
            good, value = _exchange(helper, (os.getcwd(), limit, task))
        except (EOFError, OSError, pickle.UnpicklingError) as error:
            with suppress(subprocess.TimeoutExpired):
                helper.wait(watch.GRACE)  # it has died, and its exit code says how
            end_helper()
            code = None if helper.returncode == -signal.SIGALRM else helper.returncode
            raise InputError(TaskLostError(str(path), code, limit).sentence(str(path))) from error
        except BaseException:  # Ctrl-C
            end_helper()
            raise
    if good:
        return value
    raise value


def _exchange(helper: "subprocess.Popen[bytes]", request: Any) -> tuple[bool, Any]:
    requests: Any = helper.stdin
    answers: Any = helper.stdout
    pickle.dump(request, requests)
    requests.flush()
    return pickle.load(answers)


def start_helper(preload: str = "") -> "subprocess.Popen[bytes]":
    """Helper of this process; a new one, which is started but not waited for, imports the module ``preload``."""
    helper = _helpers.get(os.getpid())
    if helper is None:
        pipe, none = subprocess.PIPE, subprocess.DEVNULL
        command = [sys.executable, "-c", START.format(path=sys.path, module=preload)]
        helper = _helpers[os.getpid()] = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=none)
    return helper


@atexit.register
def end_helper() -> None:
    """End the helper of this process, whatever it does."""
    helper = _helpers.pop(os.getpid(), None)
    if helper is not None:
        helper.kill()
        helper.communicate()


def _serve(preload: str) -> None:
    """Life of the helper: it ends with its parent, whose end of the pipe is closed then."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what a library prints is no answer
    begin_worker()
    if preload:
        import_module(preload)
    while True:
        try:
            folder, limit, task = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        os.chdir(folder)
        watch._watch = watch.Watch(multiprocessing, limit - watch.GRACE)  # whose alarm ends it
        answers.write(_done(task, SentOnce(b"")))
        answers.flush()

"""Reads of the main process, in a helper process that a damaged file may crash or hang.

Unlike a worker of `multiprocessing`, the helper does not import the user's script, which therefore needs no `if __name__ == "__main__"`.
"""

import atexit
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
from panther.machine import enable_read_limit, exit_reason, in_worker, read_limit

R = TypeVar("R")
START = "import sys; sys.path[:] = {path!r}; from panther.storage.isolated import _serve; _serve({module!r})"

GRACE = 5.0  # seconds to wait for the exit code of a dead helper

_lock = threading.Lock()
_helpers: dict[int, "subprocess.Popen[bytes]"] = {}  # by process number: a forked process has its own


def call_isolated(function: Callable[..., R], path: Any, *arguments: Any) -> R:
    """Value of ``function(path, *arguments)``, computed in a worker process or in the helper of this process.

    Code of the function that may crash or hang is inside :func:`reading`; a crash or time-out is an `InputError` that names ``path``.
    """
    if in_worker():
        return function(path, *arguments)
    task = pickle.dumps((function, (path, *arguments)))
    with _lock:
        helper = start_helper()
        try:
            requests: Any = helper.stdin
            answers: Any = helper.stdout
            pickle.dump((os.getcwd(), read_limit(), task), requests)
            requests.flush()
            is_value, value = pickle.load(answers)
        except (EOFError, OSError, pickle.UnpicklingError) as error:
            with suppress(subprocess.TimeoutExpired):
                helper.wait(GRACE)  # it has died, and its exit code says how
            end_helper()
            raise InputError(f"{path}: {exit_reason(helper.returncode)}") from error
        except BaseException:  # Ctrl-C
            end_helper()
            raise
    if is_value:
        return value
    raise value


def start_helper(preload: str = "") -> "subprocess.Popen[bytes]":
    """Helper of this process; a new one is not waited for and imports the module ``preload``."""
    helper = _helpers.get(os.getpid())
    if helper is None:
        pipe, none = subprocess.PIPE, subprocess.DEVNULL
        command = [sys.executable, "-c", START.format(path=sys.path, module=preload)]
        helper = _helpers[os.getpid()] = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=none)
    return helper


@atexit.register
def end_helper() -> None:
    """End the helper of this process."""
    helper = _helpers.pop(os.getpid(), None)
    if helper is not None:
        helper.kill()
        helper.communicate()


def _serve(preload: str) -> None:
    """Main loop of the helper; it ends with its parent, which closes the pipe."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # so that prints of libraries are not taken for answers
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this process
    if preload:
        import_module(preload)
    while True:
        try:
            folder, limit, task = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        os.chdir(folder)
        enable_read_limit(limit)
        answers.write(_answer(task))
        answers.flush()


def _answer(task: bytes) -> bytes:
    """Pickled (True, value) or (False, error)."""
    try:
        function, arguments = pickle.loads(task)
        return pickle.dumps((True, function(*arguments)))
    except Exception as error:
        try:
            return pickle.dumps((False, error))
        except Exception:  # not every exception can be pickled
            return pickle.dumps((False, RuntimeError(f"{type(error).__name__}: {error}")))

"""Imported first by the fork server, and by nothing else: Ctrl-C is its parent's business, and it leaves at once when that has gone.

Taking torch apart module by module lasts most of a second, and as long does whoever reads the command's output through a pipe wait for
its end: the server holds the other end, too.
"""

import atexit
import os
import signal

signal.signal(signal.SIGINT, signal.SIG_IGN)  # it goes to all processes of a terminal
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # blocked by `start_early` until here

atexit.register(os._exit, 0)  # the first to be registered is the last to be called; workers end without it

"""Imported first by the fork server, and by nothing else: it leaves Ctrl-C to its parent and ends at once with it.

Finalising torch module by module takes most of a second, during which the server keeps the output pipe of the command open.
"""

import atexit
import os
import signal

signal.signal(signal.SIGINT, signal.SIG_IGN)  # it goes to all processes of a terminal
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # blocked by `start_early` until here

atexit.register(os._exit, 0)  # the first to be registered is the last to be called; workers end without it

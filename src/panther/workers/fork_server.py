"""Imported first by the fork server, and by nothing else: it leaves at once when its parent has gone.

Taking torch apart module by module lasts most of a second, and as long does whoever reads the command's output through a pipe wait for
its end: the server holds the other end, too.
"""

import atexit
import os

atexit.register(os._exit, 0)  # the first to be registered is the last to be called; workers end without it

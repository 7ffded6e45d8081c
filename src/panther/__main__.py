"""The command as a process of its own: `panther`, or `python -m panther`."""

import atexit
import gc
import signal
import sys

RARELY = 20_000  # new objects between two searches for garbage: imports make many objects and hardly any garbage


def run() -> None:
    """Run the command, and leave this process at once when it is done."""
    gc.set_threshold(RARELY)
    atexit.register(_leave)  # the first to be registered is the last to be called
    try:
        from panther.cli import main  # in here: it takes long enough for somebody to press Ctrl-C

        main()
    except KeyboardInterrupt:  # before the command has begun, which says so by itself
        print("panther: stopped.", file=sys.stderr)
        sys.exit(128 + signal.SIGINT)  # as the shell calls it


def _leave() -> None:
    """Leave memory to the system: searching torch for garbage takes longer than many a command. Nobody needs the fork server any more."""
    if (machine := sys.modules.get("panther.machine")) is not None:
        machine.end_server()
    if "triton" not in sys.modules:  # it reports what is left as a leak
        gc.freeze()


if __name__ == "__main__":
    run()

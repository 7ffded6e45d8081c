"""One command as several processes, on one machine or many, that meet in a shared folder. No scheduler is needed.

Every shard runs the same command. Wherever it walks over slides it takes its own part first, then what nobody has claimed, and reads
from the folder what the others have done; so each of them, and any one that survives, ends with the whole result, byte for byte that of
one process alone.
"""

from typing import TYPE_CHECKING, Any

from panther.shards.session import Session, SessionOverError, session_folder
from panther.shards.shard import Shard

if TYPE_CHECKING:
    from panther.shards.executor import SharedExecutor

__all__ = ["Session", "SessionOverError", "Shard", "SharedExecutor", "session_folder"]


def __getattr__(name: str) -> Any:
    """Import what computes when it is asked for: whoever only looks at a session needs no torch."""
    if name == "SharedExecutor":
        from panther.shards.executor import SharedExecutor

        return SharedExecutor
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

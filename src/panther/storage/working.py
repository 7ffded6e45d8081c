"""Folders for unfinished work: taken up by the next run, removed when the work is done, and only where we made them."""

from contextlib import suppress
from pathlib import Path

from panther.errors import InputError

MARKER = "made-by-panther.txt"
TEXT = "Unfinished work of panther. Run the same command again to go on; delete this folder to begin anew.\n"
# everything we ever write there, as patterns: of a folder nothing else is deleted
OURS = (
    MARKER,
    "lock",
    "header.json",
    "done.jsonl",
    "rows",
    "rows.f32",
    "batches.jsonl",  # these two: before version 0.9
    "lock.*.part",  # what a process that was killed while it took or looked at the lock left
)


def partial_folder(target: Path) -> Path:
    """Where the rows of an unfinished bag are."""
    return target.parent / f".{target.stem}.partial"


def make_working_folder(folder: Path) -> None:
    """Make the folder, or take up the one that an earlier run made; a folder of somebody else's is refused."""
    if _foreign(folder):
        raise InputError(
            f"{folder}: unfinished work cannot be written there, because it is somebody else's; move it away, or choose another output."
        )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARKER).write_text(TEXT, encoding="utf-8")


def remove_working_folder(folder: Path) -> None:
    """Delete what we wrote there, and the folder if nothing else is in it."""
    if _foreign(folder):
        return
    with suppress(OSError):
        for path in [path for name in OURS for path in folder.glob(name)]:
            path.unlink(missing_ok=True)
        folder.rmdir()


def _foreign(folder: Path) -> bool:
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        return True
    found = list(folder.iterdir()) if folder.is_dir() else []
    marked = any(path.name == MARKER for path in found)
    return not marked and not all(any(path.match(name) for name in OURS) for path in found)

"""What a file is that has a feature file's ending but no features: in words that say what to do."""

import os
import stat
from pathlib import Path

from panther.errors import InputError

HEAD = 512  # bytes that say what a file is


def first_bytes(path: Path) -> bytes:
    """First bytes of a regular file; links that lead nowhere, pipes, and files without permission or content are refused."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            kind = "a folder" if path.is_dir() else "a pipe or a device"
            raise InputError(f"{path}: cannot be read, it is {kind}; expected a feature file.")
        with path.open("rb") as handle:
            head = handle.read(HEAD)
    except FileNotFoundError as error:
        if path.is_symlink():
            raise InputError(
                f"{path}: is a link to {os.readlink(path)}, which is not there; mend the link, or fetch what it points to."
            ) from error
        raise InputError(f"{path}: cannot be read ({error.strerror}); check the path and its permissions.") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); check the path and its permissions.") from error
    if not head:
        raise InputError(f"{path}: the file is empty (0 bytes); extract its features again.")
    return head


def what_it_is(head: bytes) -> str:
    """What a file is that no reader knows, and what to do."""
    start = head.lstrip().lower()
    if not any(head):
        return "the file is filled with zeros, as by a transfer that broke off; copy or extract it again"
    if head.startswith(b"version https://git-lfs"):
        return "a pointer of Git LFS, not the features themselves; fetch them with `git lfs pull`"
    if b"annex/objects" in head[:256]:
        return "a pointer of git-annex, not the features themselves; fetch them with `git annex get`"
    if start.startswith((b"<!doctype", b"<html", b"<?xml")):
        return "a web page (HTML), as downloads leave it when a login or an error comes between; download it again"
    if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return "a plain pickle, which could run code and is never loaded; save the tensor with torch.save or numpy.save"
    if head.startswith(b"\x1f\x8b"):
        return "compressed with gzip; unpack it"
    return "no features found"

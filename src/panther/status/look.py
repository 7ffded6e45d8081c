"""What kind of work a folder or an output belongs to, and its status."""

import os
from pathlib import Path

from panther.errors import InputError
from panther.status.measure import WorkStatus
from panther.status.slides import is_job, status_of_job


def look_at(place: Path) -> list[WorkStatus]:
    """Status of the work in a folder, or on an output; of a study in shards both that of the study and that of the shards."""
    if place.is_dir() and not os.access(place, os.R_OK | os.X_OK):
        raise InputError(f"{place}: the folder cannot be read (Permission denied); ask its owner.")
    found = []
    if place.is_dir() and is_job(place):
        found.append(status_of_job(place))
    if found:
        return found
    if not place.exists():
        raise InputError(f"{place}: there is no such folder, and no shards work on it.")
    raise InputError(
        f"{place}: no work that can be looked at; give the folder of `panther slides` or `panther run`, or what shards write."
    )

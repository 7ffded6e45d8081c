"""What kind of work a folder or an output belongs to, and its status."""

import os
import time
from pathlib import Path

from panther.errors import InputError
from panther.status.measure import WorkStatus
from panther.status.shards import is_session, session_folder, status_of_session
from panther.status.slides import is_job, status_of_job
from panther.status.study import is_study, status_of_study
from panther.users import whose


def look_at(place: Path) -> list[WorkStatus]:
    """Status of the work in a folder, or on an output; of a study in shards both that of the study and that of the shards."""
    try:
        if place.is_dir():
            os.listdir(place)  # globbing would find nothing there, and say nothing
        return _look(place)
    except PermissionError as error:
        raise InputError(
            f"{error.filename}: you may not read it{whose(Path(error.filename))} (what shards meet in is for their user alone); "
            "ask its owner."
        ) from error


def _look(place: Path) -> list[WorkStatus]:
    found = []
    if place.is_dir() and is_job(place):
        found.append(status_of_job(place))
    elif is_study(place):
        found.append(status_of_study(place))
    shards = place if is_session(place) else session_folder(place)
    if is_session(shards):
        found.append(status_of_session(shards))
    if place.is_file() and not found:
        found.append(WorkStatus(str(place), "output", time.time(), notes=("No shards work on this file.",)))
    if found:
        return found
    if not place.exists():
        raise InputError(f"{place}: there is no such folder, and no shards work on it.")
    raise InputError(
        f"{place}: no work that can be looked at; give the folder of `panther slides` or `panther run`, or what shards write."
    )

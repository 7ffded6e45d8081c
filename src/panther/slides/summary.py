"""`summary.csv` of a job: one row per slide, whichever of several runs worked on it."""

import csv
import io
import time
from collections.abc import Iterable, Mapping
from typing import Any

from panther.job_folder import PARTLY, Job, read_summary
from panther.storage.files import write_text
from panther.storage.locks import lock

COLUMNS = (
    "slide",
    "path",
    "status",
    "mpp",
    "mpp_source",
    "tissue",
    "tissue_mm2",
    "unread",
    "patches",
    "edge_lost",
    "reason",
    "note",
)


def write_summary(job: Job, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write the rows, sorted by slide; rows of slides that this run was not asked about stay."""
    for _ in range(100):  # reading and writing takes milliseconds; whoever holds it longer has died on another machine
        with lock(job.locks / "summary.csv.lock") as got:
            if got:
                _merge(job, rows)
                return
        time.sleep(0.05)
    _merge(job, rows)


def _merge(job: Job, rows: Iterable[Mapping[str, Any]]) -> None:
    table: dict[str, Mapping[str, Any]] = {row["slide"]: row for row in read_summary(job)}
    for row in rows:
        kept = table.get(row["slide"], {})
        # another process's finished row is better than our "busy"
        table[row["slide"]] = kept if row["status"] == "busy" and kept.get("status") in ("done", PARTLY) else row
    names = [*COLUMNS, *sorted({key for row in table.values() for key in row} - set(COLUMNS))]
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(table[name] for name in sorted(table))
    write_text(job.summary, text.getvalue())

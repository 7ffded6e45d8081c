"""`summary.csv` of a job: one row per slide, from however many runs.

Tasks of a job array (``part``) write a table each, `summary-PART.csv`, so that none waits for, or overwrites, another; readers see one table.
"""

import csv
import io
from collections.abc import Iterable, Mapping
from typing import Any

from panther.storage.files import write_text
from panther.storage.names import Job, read_summary

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


def write_summary(job: Job, rows: Iterable[Mapping[str, Any]], part: str = "") -> None:
    """Write the rows, sorted by slide; without ``part``, rows of slides that are not in this run stay."""
    table: dict[str, Mapping[str, Any]] = {} if part else {row["slide"]: row for row in read_summary(job)}
    table |= {row["slide"]: row for row in rows}
    names = [*COLUMNS, *sorted({key for row in table.values() for key in row} - set(COLUMNS))]
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(table[name] for name in sorted(table))
    write_text(job.summary_of(part), text.getvalue())

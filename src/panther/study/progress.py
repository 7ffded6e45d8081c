"""What a study tells of its progress while it runs: the jobs of its stages, who works on them, and which have failed."""

from collections.abc import Mapping
from pathlib import Path

from panther.content import hash_of
from panther.progress import Item, Plan, WorkRecord
from panther.study.file import Study
from panther.study.jobs import StudyJob


def study_record(study: Study, folder: Path) -> WorkRecord:
    """The record of a study, beside what it keeps."""
    return WorkRecord(folder / "cache" / "progress", hash_of(study.model_dump_json()))


def begin_stages(record: WorkRecord, stages: Mapping[str, Mapping[Path, StudyJob]], folder: Path) -> None:
    """Write down the jobs of every stage, by the files that they make; what failed before is tried again."""
    record.forget_failures()
    for stage, jobs in stages.items():
        items = tuple(Item(path.relative_to(folder).as_posix(), str(job)) for path, job in jobs.items())
        record.begin(stage, Plan((stage,), items, "jobs"))

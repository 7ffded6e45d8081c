"""How far a job or a study is: what is in its folder against what was planned."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from panther.errors import InputError
from panther.job_folder import PARTLY, Job, read_summary
from panther.storage.files import DAMAGE, read_json

RECORD, PLAN = "run.json", Path("cache", "plan.json")


@dataclass(frozen=True)
class Status:
    """Counts of one step."""

    step: str
    total: int
    done: int
    failed: dict[str, str] = field(default_factory=dict)  # item -> reason

    @property
    def left(self) -> int:
        """Items that are neither done nor failed."""
        return max(self.total - self.done - len(self.failed), 0)


def read_status(folder: Path) -> list[Status]:
    """Steps of a job folder of `panther slides`, or stages of a study folder of `panther run`.

    Examples
    --------
    >>> from panther.status import read_status
    >>> read_status(Path("job"))  # doctest: +SKIP
    [Status(step='tissue', total=71, done=70, failed={'BAD': 'BAD.svs: ...'}), ...]
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder")
    rows = read_summary(Job(folder))
    if rows and "status" in rows[0]:
        return _of_slides(folder, rows)
    if (folder / PLAN).is_file() or (folder / RECORD).is_file():
        return _of_study(folder)
    raise InputError(f"{folder}: neither a job of `panther slides` nor a study of `panther run`")


def _of_slides(folder: Path, rows: list[dict[str, str]]) -> list[Status]:
    names = {row["slide"] for row in rows}
    failed = {row["slide"]: row["reason"] for row in rows if row["status"] in ("failed", PARTLY)}
    steps = {
        "tissue": folder / "contours_geojson",
        **{_step(path): path for path in sorted(folder.glob("*/*")) if _step(path)},
    }
    found = {
        step: {_slide(path) for path in place.iterdir()} & names for step, place in steps.items() if place.is_dir()
    }
    return [
        Status(step, len(names), len(there - failed.keys()), {name: failed[name] for name in failed})
        for step, there in found.items()
    ]


def _step(path: Path) -> str:
    """Name of the step whose files a folder holds; empty for other folders."""
    is_step = path.is_dir() and (path.name == "patches" or path.name.startswith("features_"))
    return f"{path.parent.name}/{path.name}" if is_step else ""


def _slide(path: Path) -> str:
    return path.name.removesuffix(".geojson").removesuffix(".h5").removesuffix("_patches")


def _of_study(folder: Path) -> list[Status]:
    record = _json(folder / RECORD)
    plan = _json(folder / PLAN)
    failures: dict[str, str] = dict(record.get("failures", {}))
    return [
        Status(
            stage,
            len(files),
            sum((folder / file).is_file() for file in files),
            {name: why for name, why in failures.items() if name.startswith(f"{stage}: ")},
        )
        for stage, files in plan.items()
        if files
    ]


def _json(path: Path) -> dict[str, Any]:
    try:
        value = read_json(path)
    except DAMAGE:
        return {}
    return value if isinstance(value, dict) else {}

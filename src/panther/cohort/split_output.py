"""Splits are written as `{name}_k={i}/{part}.csv`, with what they were made of in `{name}.json`."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from panther.cohort.balance import FoldBalance
from panther.cohort.load import Cohort
from panther.cohort.spec import SplitSpec
from panther.cohort.split import Split, sizes
from panther.errors import InputError
from panther.storage.files import write_text
from panther.storage.table_files.parts import FOLDER
from panther.storage.tables import write_table
from panther.store import check_output, check_writable_folder
from panther.version import __version__


def plain_name(path: Path) -> str:
    """Name for the splits of a table, or of given splits: without the ending of a file or a fold."""
    return (path.name if path.is_dir() else path.stem).split("_k=")[0]


def check_splits_output(folder: Path, name: str, given: Path) -> None:
    """Refuse to write over the splits, or the table, that are read."""
    files = [given, *(given.rglob("*.csv") if given.is_dir() else given.parent.glob(f"{given.name}_k=*/*.csv"))]
    for file in (folder / f"{name}.json", *folder.glob(f"{name}_k=*/*.csv")):
        check_output(file, files)


def about_splits(cohort: Cohort, splits: list[Split], balance: FoldBalance | None) -> dict[str, Any]:
    """Sizes of the parts of every fold, and the balance."""
    return {"folds": [sizes(cohort, split) for split in splits], "balance": asdict(balance) if balance else None}


def about_made(spec: SplitSpec, cohort: Cohort) -> dict[str, Any]:
    """How splits were made, and a hash of the rows that are used: it knows a table that has changed."""
    digest = hashlib.blake2b(cohort.rows.to_csv().encode(), digest_size=16).hexdigest()
    return {
        "scheme": spec.scheme,
        "settings": spec.model_dump(exclude={"scheme"}),
        "cohort": digest,
        "version": __version__,
    }


def write_splits(folder: Path, name: str, cohort: Cohort, splits: list[Split], about: Mapping[str, Any]) -> list[Path]:
    """Write the table's own rows, all slides of each sample, as `{name}_k={i}/{part}.csv`, and `{name}.json` with the settings, last."""
    if not re.fullmatch(r"[\w.+ -]+", name) or name.startswith("."):
        raise InputError(f"{name!r} cannot be the name of split folders; use letters, digits, - and _.")
    check_writable_folder(folder)
    slides = {sample.id: list(sample.slides) for sample in cohort.samples}
    files = {
        folder / f"{name}_k={i}" / f"{part}.csv": [slide for sample in ids for slide in slides[sample]]
        for i, split in enumerate(splits)
        for part, ids in split.parts().items()
    }
    _refuse_leftovers(folder, name, set(files))
    summary = folder / f"{name}.json"
    summary.unlink(missing_ok=True)  # a killed run leaves no summary beside half-written folds
    for path, chosen in files.items():
        write_table(path, cohort.rows.loc[chosen])
    write_text(summary, json.dumps(about, indent=2, default=str) + "\n")
    return [*files, summary]


def _refuse_leftovers(folder: Path, name: str, files: set[Path]) -> None:
    """Files of an earlier, larger split would be read as part of this one."""
    present = {file for file in folder.glob(f"{name}_k=*/*.csv") if FOLDER.fullmatch(file.parent.name)}
    if extra := sorted(present - files):
        raise InputError(
            f"{extra[0]} and {len(extra) - 1} more are of an earlier split; remove them, or give another `name=`."
        )

"""Splits on disk: `{name}_k={i}/{train,val,test,test_<cohort>}.csv`, CLAM's `splits_{i}.csv`, Patho-Bench's `k=all.tsv`.

Splits are written as `{name}_k={i}/{part}.csv`, with what they were made of in `{name}.json`.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from panther.cohort.load import Cohort
from panther.cohort.spec import SplitSpec
from panther.cohort.splits import FoldBalance, Split, check, shared_sites, sizes
from panther.errors import InputError, listed
from panther.storage.clinical import SLIDE_COLUMNS, USUAL, Columns, find_column, identify
from panther.storage.files import write_text
from panther.storage.tables import FOLDER, PART, as_table, part_files, refuse_shared_patients, write_table
from panther.store import check_output, check_writable_folder
from panther.version import __version__

CLAM = re.compile(r"splits_(\d+)\.csv")
TABLE_SUFFIXES = (".csv", ".tsv", ".txt", ".parquet")


@dataclass(frozen=True)
class SplitFiles:
    """Parts as written: for each fold, part -> rows (all cells strings)."""

    source: str
    folds: tuple[Mapping[str, pd.DataFrame], ...]
    numbers: tuple[int, ...]  # of the folds, from their names

    def has_rows(self) -> bool:
        """Whether the files have more than the names of slides."""
        return all(len(rows.columns) > 1 for parts in self.folds for rows in parts.values())

    def table(self, *, external: bool = True) -> pd.DataFrame:
        """All rows of all folds joined, each once; external cohorts last, or left out."""
        parts = [(part.startswith("test_"), rows) for fold in self.folds for part, rows in fold.items()]
        tables = [
            [rows for is_external, rows in parts if is_external == last] for last in (False, True)[: 1 + external]
        ]
        joined = [pd.concat(some).drop_duplicates() for some in tables if some]
        table = pd.concat(joined, ignore_index=True).fillna("")
        table.attrs["source"] = self.source
        return table


@dataclass(frozen=True)
class SplitReport:
    """Result of a check of splits."""

    notes: tuple[str, ...]
    left_out: int  # samples of the files that the cohort lacks, e.g. without an endpoint or features
    shared_sites: Mapping[int, list[str]]  # fold -> sites in training and test


def read_splits(path: Path) -> SplitFiles:
    """Read splits: a folder of folds, one fold, CLAM's lists, a `k=all.tsv`, or the common beginning of folders' names."""
    if path.is_file():
        return _patho_bench(path)
    if not path.is_dir():
        if not path.parent.is_dir():
            raise InputError(f"{path}: there is no such folder or file of splits.")
        return _folds(path.parent, path.name)
    if part_files(path):
        number = FOLDER.fullmatch(path.name)
        return SplitFiles(str(path), (_parts(path),), (int(number["k"]) if number else 0,))
    if any(CLAM.fullmatch(file.name) for file in path.glob("splits_*.csv")):
        return _clam(path)
    if (path / "k=all.tsv").is_file():
        return _patho_bench(path / "k=all.tsv")
    return _folds(path, None)


def assign(files: SplitFiles, cohort: Cohort, columns: Columns = USUAL) -> tuple[list[Split], SplitReport]:
    """Splits of a cohort's samples from files, checked: no patient in two parts of a fold, sites in two parts are reported.

    An external cohort of one fold only is tested with the models of every fold.
    """
    slides: dict[str, list[str]] = {}  # samples of a slide, and of a patient
    patients: dict[str, list[str]] = {}
    for sample in cohort.samples:
        patients.setdefault(sample.patient, []).append(sample.id)
        for slide in sample.slides:
            slides.setdefault(slide, []).append(sample.id)
    notes: list[str] = []
    unknown: set[str] = set()
    splits = []
    for number, parts in zip(files.numbers, files.folds, strict=True):
        who = {part: identify(rows, columns.among(rows)) for part, rows in parts.items()}
        # checked for samples without a label too
        refuse_shared_patients(f"{files.source}, k={number}", {part: one.patient for part, one in who.items()})
        named: dict[str, tuple[str, ...]] = {}
        for part, rows in parts.items():
            by_slide = find_column(rows, columns.among(rows).slide, SLIDE_COLUMNS, "slide") is not None
            names, known = (who[part].slide, slides) if by_slide else (who[part].patient, patients)
            unknown |= {name for name in names if name not in known}
            named[part] = tuple(sorted({sample for name in names for sample in known.get(name, ())}))
        splits.append(Split.from_parts(named))
    external: dict[str, tuple[str, ...]] = {}  # in every fold
    for number, split in zip(files.numbers, splits, strict=True):
        for part, ids in split.test.items():
            if part.startswith("test_") and part not in external:
                external[part] = ids
                if len(splits) > 1 and any(part not in other.test for other in splits):
                    notes.append(f"{part} is given with k={number} and is tested with the models of every fold.")
    splits = [replace(split, test={**external, **split.test}) for split in splits]
    for number, split in zip(files.numbers, splits, strict=True):
        notes += check(cohort, split, f"{files.source}, k={number}" if len(splits) > 1 else files.source)
    tested = pd.Series([name for split in splits for name in split.test.get("test", ())], dtype=str)
    if tested.duplicated().any():
        notes.append(f"{tested[tested.duplicated()].nunique()} samples are tested in more than one fold.")
    if nowhere := set(cohort.ids) - {name for split in splits for ids in split.parts().values() for name in ids}:
        notes.append(f"{len(nowhere)} samples of the table are in no part of the splits, e.g. {min(nowhere)}.")
    sites = {number: shared_sites(cohort, split) for number, split in zip(files.numbers, splits, strict=True)}
    return splits, SplitReport(tuple(notes), len(unknown), sites)


def holds_splits(path: Path) -> bool:
    """Whether a path is of splits (a folder, or Patho-Bench's `k=all.tsv`) rather than of a clinical table."""
    if path.suffix in TABLE_SUFFIXES:
        return path.suffix == ".tsv" and path.is_file() and bool(_fold_columns(as_table(path)))
    return True


def split_source(path: Path) -> Path | pd.DataFrame:
    """Clinical table to be divided: the file itself, or the rows of splits joined, external cohorts left out."""
    return path if path.suffix in TABLE_SUFFIXES else read_splits(path).table(external=False)


def _folds(folder: Path, name: str | None) -> SplitFiles:
    folders = [(match, p) for p in folder.iterdir() if p.is_dir() and (match := FOLDER.fullmatch(p.name))]
    names = sorted({match["name"] for match, _ in folders} if name is None else {name})
    folds = sorted((int(match["k"]), path) for match, path in folders if match["name"] in names)
    if not folds:
        what = folder if name is None else folder / name
        expected = f"NAME_k=0 ..., splits_0.csv ... (CLAM), k=all.tsv or {{column: {name or 'NAME'}}}"
        raise InputError(f"{what}: no splits, expected {expected}")
    if len(names) > 1:
        raise InputError(f"{folder}: holds several splits, {listed(names)}; give one, e.g. {folder / names[0]}.")
    gap = sorted(set(range(max(number for number, _ in folds) + 1)) - {number for number, _ in folds})
    if gap:
        raise InputError(f"{folder / names[0]}: fold k={gap[0]} is missing among {listed(n for n, _ in folds)}")
    return SplitFiles(
        str(folder / names[0]), tuple(_parts(path) for _, path in folds), tuple(number for number, _ in folds)
    )


def _parts(folder: Path) -> dict[str, pd.DataFrame]:
    """Tables of one fold; validation and external cohorts are optional, and so is the test."""
    files = part_files(folder)
    if "train" not in files:
        raise InputError(f"{folder}: no train.csv beside {listed(file.name for file in files.values())}")
    return {part: as_table(file) for part, file in files.items()}


def _clam(folder: Path) -> SplitFiles:
    """Columns train, val, test with names of slides."""
    numbered = sorted((int(match[1]), file) for file in folder.iterdir() if (match := CLAM.fullmatch(file.name)))
    folds = []
    for _, file in numbered:
        table = as_table(file)
        if "train" not in table.columns:
            raise InputError(f"{file}: expected CLAM's columns train, val, test; found {listed(list(table.columns))}.")
        parts = [part for part in ("train", "val", "test") if part in table.columns]
        lists = {part: table[part][table[part].str.strip() != ""] for part in parts}
        folds.append({part: pd.DataFrame({"slide_id": names}) for part, names in lists.items() if len(names)})
    return SplitFiles(str(folder), tuple(folds), tuple(number for number, _ in numbered))


def _patho_bench(file: Path) -> SplitFiles:
    """Columns fold_0, fold_1 ... hold train, val or test for every row."""
    table = as_table(file)
    columns = _fold_columns(table)
    if not columns:
        raise InputError(f"{file}: no columns fold_0, fold_1 ... of train and test among {listed(table.columns)}")
    rows = table.drop(columns=columns)
    folds = []
    for column in columns:
        part = table[column].str.strip().str.lower()
        wrong = sorted(set(part[~part.str.fullmatch(PART)]) - {""})
        if wrong or not (part == "train").any():
            raise InputError(
                f"{file}: {column} says {listed(wrong or sorted(set(part)), 6)}; expected train, val, test"
            )
        folds.append({name: rows[part == name] for name in sorted(set(part) - {""})})
    return SplitFiles(str(file), tuple(folds), tuple(int(column[5:]) for column in columns))


def _fold_columns(table: pd.DataFrame) -> list[str]:
    return sorted((c for c in table.columns if re.fullmatch(r"fold_\d+", c)), key=lambda c: int(c[5:]))


def plain_name(path: Path) -> str:
    """Name for splits of a table or of other splits: without the ending of a file or a fold."""
    return (path.name if path.is_dir() else path.stem).split("_k=")[0]


def check_splits_output(folder: Path, name: str, source: Path | None) -> None:
    """Refuse to overwrite the splits or the table that are read."""
    if source is None:
        return
    files = [source, *(source.rglob("*.csv") if source.is_dir() else source.parent.glob(f"{source.name}_k=*/*.csv"))]
    for file in (folder / f"{name}.json", *folder.glob(f"{name}_k=*/*.csv")):
        check_output(file, files)


def about_splits(cohort: Cohort, splits: list[Split], balance: FoldBalance | None) -> dict[str, Any]:
    """Sizes of the parts of every fold, and the balance."""
    return {"folds": [sizes(cohort, split) for split in splits], "balance": asdict(balance) if balance else None}


def about_made(spec: SplitSpec, cohort: Cohort) -> dict[str, Any]:
    """Settings of splits, and a hash of the used rows, which detects a changed table."""
    digest = hashlib.blake2b(cohort.rows.to_csv().encode(), digest_size=16).hexdigest()
    settings = spec.model_dump(exclude={"scheme"})
    return {"scheme": spec.scheme, "settings": settings, "cohort": digest, "version": __version__}


def write_splits(folder: Path, name: str, cohort: Cohort, splits: list[Split], about: Mapping[str, Any]) -> list[Path]:
    """Write the rows of the table, all slides of each sample, as `{name}_k={i}/{part}.csv`, then `{name}.json` with the settings."""
    if not re.fullmatch(r"[\w.+ -]+", name) or name.startswith("."):
        raise InputError(f"{name!r} cannot be the name of split folders; use letters, digits, - and _.")
    check_writable_folder(folder)
    slides = {sample.id: list(sample.slides) for sample in cohort.samples}
    files = {
        folder / f"{name}_k={i}" / f"{part}.csv": [slide for sample in ids for slide in slides[sample]]
        for i, split in enumerate(splits)
        for part, ids in split.parts().items()
    }
    present = {file for file in folder.glob(f"{name}_k=*/*.csv") if FOLDER.fullmatch(file.parent.name)}
    if extra := sorted(present - set(files)):  # would be read as part of this split
        raise InputError(f"{extra[0]} and {len(extra) - 1} more are of an earlier split; use another `name=`")
    summary = folder / f"{name}.json"
    if summary.is_file():
        earlier, made = (json.loads(text) for text in (summary.read_text(), json.dumps(about, default=str)))
        changed = [key for key in ("scheme", "settings", "cohort") if earlier.get(key) != made.get(key)]
        if changed:
            raise InputError(f"{summary}: found an earlier split of other {' and '.join(changed)}; use another `name=`")
    summary.unlink(missing_ok=True)  # a killed run leaves no summary beside half-written folds
    for path, chosen in files.items():
        write_table(path, cohort.rows.loc[chosen])
    write_text(summary, json.dumps(about, indent=2, default=str) + "\n")
    return [*files, summary]

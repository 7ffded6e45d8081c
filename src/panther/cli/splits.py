"""`panther splits`: make honest splits of a clinical table, or check those that are there."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from panther.cli import _common as common
from panther.cli import _options as opt

if TYPE_CHECKING:
    from panther.cohort.endpoints import Endpoint
    from panther.cohort.load import Cohort
    from panther.cohort.splits import Balance, Split

TABLE_SUFFIXES = (".csv", ".tsv", ".txt", ".parquet")


def splits(
    table: Annotated[
        Path,
        typer.Argument(help="Clinical table (CSV, TSV, parquet), or splits whose rows are joined.", show_default=False),
    ],
    scheme: Annotated[
        str | None, typer.Option(help="holdout, kfold or site-kfold; without it given splits are checked.")
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Folder to write NAME_k=0 ... to.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the splits; the table's by default.")] = None,
    given: Annotated[
        Path | None, typer.Option("--check", help="Splits to check against TABLE, e.g. CLAM's folder of splits_0.csv.")
    ] = None,
    label: Annotated[str | None, typer.Option(help="Column of the label; found by its usual names.")] = None,
    classes: Annotated[str | None, typer.Option(help="Classes in their order, A,B,C; others are left out.")] = None,
    survival: opt.SurvivalOption = None,
    time: opt.TimeOption = None,
    event: opt.EventOption = None,
    censorship: opt.CensorshipOption = None,
    level: opt.LevelOption = opt.Level.patient,
    k: Annotated[int, typer.Option("-k", "--folds", help="Number of folds.")] = 5,
    shares: Annotated[str, typer.Option(help="Train, val and test of a holdout, e.g. 50:25:25.")] = "80:10:10",
    val: Annotated[bool, typer.Option("--val", help="The next fold of a k-fold validates.")] = False,
    seed: opt.SeedOption = 0,
    slide_column: opt.SlideColumnOption = None,
    patient_column: opt.PatientColumnOption = None,
    site_column: opt.SiteColumnOption = None,
    seconds: Annotated[float, typer.Option(help="Longest time for the solver of site-kfold.")] = 20.0,
    as_json: opt.JsonOption = False,
) -> None:
    """Divide a cohort at patient level, or check given splits for leakage."""
    from panther.cohort.site_folds import Effort
    from panther.cohort.splits import SplitSettings
    from panther.errors import InputError
    from panther.storage.clinical import Columns

    endpoint = _endpoint(label, classes, (survival, time, event, censorship))
    columns = Columns(slide_column, patient_column, site_column)
    if scheme is None:
        _check(given or table, table if given else None, endpoint, (level.value, columns), as_json=as_json)
        return
    if given is not None or output is None:
        raise InputError(
            "Give --scheme with -o FOLDER to make splits, or --check SPLITS without --scheme to check them."
        )
    settings = SplitSettings(k, seed, _shares(shares), val, Effort(seconds=seconds))
    _make(table, endpoint, (level.value, columns), (scheme, settings, output, name), as_json=as_json)


def _make(table: Path, endpoint: "Endpoint", how: tuple[Any, Any], request: tuple[Any, ...], *, as_json: bool) -> None:
    """Make, tell and write splits."""
    from panther.cohort.load import load_cohort
    from panther.cohort.split_files import read_splits, write_splits
    from panther.cohort.splits import balanced_splits, check
    from panther.version import __version__

    scheme, settings, output, name = request
    level, columns = how
    _keep_given(table, output, name or _plain_name(table))
    source = table if table.suffix in TABLE_SUFFIXES else read_splits(table).table(external=False)
    cohort = load_cohort(source, endpoint, level=level, columns=columns)
    made, balance = balanced_splits(cohort, scheme, settings)
    notes = [note for number, split in enumerate(made) for note in check(cohort, split, f"fold {number}")]
    if balance is not None and balance.hit_time_limit:
        notes.append("The clock stopped the solver; another machine may find other folds. Raise --seconds.")
    about = {
        "scheme": scheme,
        "settings": asdict(settings),
        "level": level,
        "cohort": _digest(cohort),
        "version": __version__,
        **_result(cohort, made, balance),
    }
    files = write_splits(output, name or _plain_name(table), cohort, made, about)
    lines = [*cohort.report.sentences(), *_lines(cohort, made, balance), f"Wrote {len(files)} files to {output}."]
    result = {**about, "files": [str(path) for path in files], "report": cohort.report.to_dict()}
    common.report(result, lines, {}, as_json=as_json, notes=notes)


def _keep_given(table: Path, output: Path, name: str) -> None:
    """Refuse to write over the splits, or the table, that are read."""
    from panther.storage.inputs import check_output

    given = [table, *(table.rglob("*.csv") if table.is_dir() else table.parent.glob(f"{table.name}_k=*/*.csv"))]
    for file in (output / f"{name}.json", *output.glob(f"{name}_k=*/*.csv")):
        check_output(file, given)


def _check(given: Path, table: Path | None, endpoint: "Endpoint", how: tuple[Any, Any], *, as_json: bool) -> None:
    """Check given splits and tell how alike their test folds are."""
    from panther.cohort.load import load_cohort
    from panther.cohort.split_files import assign, read_splits
    from panther.errors import InputError

    level, columns = how
    if table is None and given.suffix in TABLE_SUFFIXES and given.suffix != ".tsv":
        raise InputError(
            f"{given}: what shall be done with the table? Give --scheme kfold, holdout or site-kfold, or --check SPLITS."
        )
    files = read_splits(given)
    if table is None and not files.has_rows():
        raise InputError(
            f"{given}: these splits only name slides; give the clinical table too: panther splits TABLE --check {given}."
        )
    cohort = load_cohort(table or files.table(), endpoint, level=level, columns=columns)
    found, report = assign(files, cohort, columns)
    balance = _balance_of_tests(cohort, found)
    lines = [*cohort.report.sentences(), *_lines(cohort, found, balance), "No patient is in two parts of a fold."]
    if report.left_out:
        lines.append(f"{report.left_out} names in the splits have no usable row in the table and are left out.")
    shared = {fold: sites for fold, sites in report.shared_sites.items() if sites}
    some = f"{len(shared)} of {len(found)} folds, e.g. {', '.join(next(iter(shared.values()))[:5])}" if shared else ""
    lines.append(f"Sites in training and test: {some}." if shared else "No site is in training and test of a fold.")
    result = {**_result(cohort, found, balance), "left_out": report.left_out, "shared_sites": report.shared_sites}
    common.report({**result, "report": cohort.report.to_dict()}, lines, {}, as_json=as_json, notes=report.notes)


def _endpoint(label: str | None, classes: str | None, survival: tuple[str | None, ...]) -> "Endpoint":
    from panther.cohort.endpoints import LabelEndpoint, SurvivalEndpoint
    from panther.errors import InputError

    if not any(survival):
        return LabelEndpoint(label, tuple(c.strip() for c in classes.split(",")) if classes else None)
    if label or classes:
        raise InputError("Give a --label or a --survival endpoint, not both.")
    return SurvivalEndpoint(*survival)


def _shares(text: str) -> tuple[float, float, float]:
    from panther.errors import InputError

    try:
        train, val, test = map(float, text.split(":"))
    except ValueError as error:
        raise InputError(f"--shares {text!r} is not train:val:test; give e.g. 80:10:10.") from error
    return train, val, test


def _plain_name(table: Path) -> str:
    """Name for splits: the table's, without a fold's ending."""
    return (table.name if table.is_dir() else table.stem).split("_k=")[0]


def _digest(cohort: "Cohort") -> str:
    """Hash of the rows that are used: it knows a table that has changed."""
    import hashlib

    return hashlib.blake2b(cohort.rows.to_csv().encode(), digest_size=16).hexdigest()


def _balance_of_tests(cohort: "Cohort", splits: "list[Split]") -> "Balance | None":
    """Balance over folds whose tests do not overlap; external cohorts do not count."""
    import numpy as np

    from panther.cohort.splits import balance_of

    tests = [cohort.positions(split.test.get("test", ())) for split in splits]
    everybody = np.concatenate(tests)
    if len(splits) < 2 or len(set(everybody)) < len(everybody):
        return None
    fold = np.repeat(np.arange(len(tests)), [len(test) for test in tests])
    return balance_of(cohort.target.take(everybody), fold, len(splits))


def _result(cohort: "Cohort", splits: "list[Split]", balance: "Balance | None") -> dict[str, Any]:
    from panther.cohort.splits import sizes

    return {"folds": [sizes(cohort, split) for split in splits], "balance": asdict(balance) if balance else None}


def _lines(cohort: "Cohort", splits: "list[Split]", balance: "Balance | None") -> list[str]:
    """Parts of every fold, one a line, and the balance."""
    from panther.cohort.load import counts_of
    from panther.cohort.splits import sizes

    groups = list(counts_of(cohort.target))
    shown = groups if len(groups) <= 8 else []  # thirty diagnoses do not fit a line; --json has them
    lines = [f"fold  {'part':<12} samples  " + "".join(f"{group[:12]:>13}" for group in shown) + "  sites"]
    for number, split in enumerate(splits):
        for part, about in sizes(cohort, split).items():
            sites = about["sites"]
            named = ", ".join(sites) if len(sites) <= 6 else f"{len(sites)} sites"
            lines.append(
                f"{number:<5} {part:<12} {about['samples']:>7}  "
                + "".join(f"{about['counts'][g]:>13}" for g in shown)
                + f"  {named}"
            )
    if balance is not None:
        bound = "" if balance.bound is None else f"; no folds of whole sites can have less than {balance.bound:.4f}"
        lines.append(
            f"Imbalance {balance.imbalance:.4f} (share that would have to change fold, mean over strata){bound}."
        )
    return lines

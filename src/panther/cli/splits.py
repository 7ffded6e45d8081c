"""`panther splits`: make honest splits of a clinical table, or check those that are there."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from panther.cli import _common as common
from panther.cli import _options as opt
from panther.cli._parsers import parse_names, parse_shares


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
    value: opt.ValueOption = None,
    labels: opt.LabelsOption = None,
    level: opt.LevelOption = opt.Level.patient,
    k: Annotated[int, typer.Option("-k", "--folds", help="Number of folds.")] = 5,
    shares: Annotated[
        str, typer.Option(help="Train, val and test of a holdout in parts of whatever sum, e.g. 50:25:25 or 8:1:1.")
    ] = "80:10:10",
    val: Annotated[bool, typer.Option("--val", help="The next fold of a k-fold validates.")] = False,
    seed: opt.SeedOption = 0,
    slide_column: opt.SlideColumnOption = None,
    patient_column: opt.PatientColumnOption = None,
    site_column: opt.SiteColumnOption = None,
    seconds: Annotated[float, typer.Option(help="Longest time for the solver of site-kfold.")] = 20.0,
    as_json: opt.JsonOption = False,
) -> None:
    """Divide a cohort at patient level, or check given splits for leakage."""
    from panther.errors import InputError

    task = {"label": label, "classes": parse_names(classes), "survival": survival, "time": time, "event": event}
    columns = common.columns(slide_column, patient_column, site_column)
    task |= {"value": value, "labels": parse_names(labels)}
    task |= {"censorship": censorship, "level": level.value, "columns": columns}
    if scheme is None:
        _check(given or table, table if given else None, task, as_json=as_json)
        return
    if given is not None or output is None:
        raise InputError(
            "Give --scheme with -o FOLDER to make splits, or --check SPLITS without --scheme to check them."
        )
    settings = {"scheme": scheme, "k": k, "seed": seed, "shares": parse_shares(shares), "val": val, "seconds": seconds}
    _make(table, task, settings, output, name, as_json=as_json)


def _make(
    table: Path, task: dict[str, Any], settings: dict[str, Any], output: Path, name: str | None, *, as_json: bool
) -> None:
    """Make splits, write them and say what they hold."""
    from panther.cohort import split_files as split_output
    from panther.cohort.load import load_cohort
    from panther.cohort.spec import SplitSpec, checked
    from panther.cohort.split_files import split_source
    from panther.cohort.splits import balanced_splits, fold_notes

    name = name or split_output.plain_name(table)
    split_output.check_splits_output(output, name, table)
    spec = checked(SplitSpec, **settings)
    cohort = load_cohort(split_source(table), **task)
    made, balance = balanced_splits(cohort, spec)
    notes = fold_notes(cohort, made)
    if balance is not None and balance.hit_time_limit:
        notes.append("The time limit stopped the solver; another machine may find other folds. Raise `seconds=`.")
    held = split_output.about_splits(cohort, made, balance)
    about = {**split_output.about_made(spec, cohort), "level": task["level"], **held}
    written = split_output.write_splits(output, name, cohort, made, about)
    lines = [*cohort.report.sentences(), *_lines(about), f"Wrote {len(written)} files to {output}."]
    result = {**about, "files": [str(path) for path in written], "report": cohort.report.to_dict()}
    common.report(result, lines, {}, as_json=as_json, notes=notes)


def _check(given: Path, table: Path | None, task: dict[str, Any], *, as_json: bool) -> None:
    """Check given splits and tell how alike their test folds are."""
    from panther.cohort import split_files as files
    from panther.cohort.load import load_cohort
    from panther.cohort.split_files import about_splits
    from panther.cohort.splits import balance_of_tests
    from panther.errors import InputError

    if table is None and given.suffix in files.TABLE_SUFFIXES and given.suffix != ".tsv":
        raise InputError(
            f"{given}: what shall be done with the table? Give --scheme kfold, holdout or site-kfold, or --check SPLITS."
        )
    splits = files.read_splits(given)
    if table is None and not splits.has_rows():
        raise InputError(
            f"{given}: these splits only name slides; give the clinical table too: panther splits TABLE --check {given}."
        )
    cohort = load_cohort(table or splits.table(), **task)
    found, report = files.assign(splits, cohort, task["columns"])
    about = about_splits(cohort, found, balance_of_tests(cohort, found))
    lines = [*cohort.report.sentences(), *_lines(about), "No patient is in two parts of a fold."]
    if report.left_out:
        lines.append(f"{report.left_out} names in the splits have no usable row in the table and are left out.")
    shared = {fold: sites for fold, sites in report.shared_sites.items() if sites}
    some = f"{len(shared)} of {len(found)} folds, e.g. {', '.join(next(iter(shared.values()))[:5])}" if shared else ""
    known = sum(site is not None for site in cohort.sites)
    none = f"No site is in training and test of a fold (sites of {known} of {len(cohort)} samples are known)."
    lines.append(f"Sites in training and test: {some}." if shared else none if known else "Sites are not known.")
    result = {**about, "left_out": report.left_out, "shared_sites": report.shared_sites}
    common.report({**result, "report": cohort.report.to_dict()}, lines, {}, as_json=as_json, notes=report.notes)


def _lines(about: Mapping[str, Any]) -> list[str]:
    """Parts of every fold, one per line, and the balance."""
    groups = list(about["folds"][0]["train"]["counts"])
    shown = groups if len(groups) <= 8 else []  # thirty diagnoses do not fit a line; --json has them
    lines = [f"fold  {'part':<12} samples  " + "".join(f"{group[:12]:>13}" for group in shown) + "  sites"]
    for number, parts in enumerate(about["folds"]):
        for part, held in parts.items():
            sites = ", ".join(held["sites"]) if len(held["sites"]) <= 6 else f"{len(held['sites'])} sites"
            counts = "".join(f"{held['counts'][group]:>13}" for group in shown)
            lines.append(f"{number:<5} {part:<12} {held['samples']:>7}  {counts}  {sites}")
    if balance := about["balance"]:
        bound = balance["bound"]
        least = "" if bound is None else f"; no folds of whole sites can have less than {bound:.4f}"
        lines.append(
            f"Imbalance {balance['imbalance']:.4f} (share that would have to change fold, mean over strata){least}."
        )
    return lines

"""`panther retrieval`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from panther.cli import _common as common
from panther.cli import _options as opt


def retrieval(
    embeddings: Annotated[
        list[Path],
        typer.Argument(
            help="Embeddings (.h5ad or .npz), or vectors of slide encoders; several are compared with the first.",
            show_default=False,
        ),
    ],
    table: opt.TableOption = None,
    label: opt.LabelOption = None,
    classes: Annotated[str | None, typer.Option(help="Classes that count, parted by commas; all by default.")] = None,
    slide_column: opt.SlideColumnOption = None,
    patient_column: opt.PatientColumnOption = None,
    site_column: opt.SiteColumnOption = None,
    leave_site_out: opt.LeaveSiteOutOption = False,
    on: opt.OnOption = None,
    at: Annotated[str, typer.Option(help="Numbers of neighbours, parted by commas.")] = "1,3,5,10",
    bootstrap: Annotated[int, typer.Option(min=0, help="Resamples of the patients for intervals; 0: none.")] = 1000,
    seed: opt.SeedOption = 0,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Table to write (.csv or .parquet).", show_default=False)
    ] = None,
    as_json: opt.JsonOption = False,
) -> None:
    """Judge embeddings by whether the nearest slides of other patients have the same label: Acc@k, mMV@k, mAP@k.

    Slides of one patient are never compared. --on may name several ways, parted by commas.
    """
    from panther.search.retrieval import retrieval as judge
    from panther.storage.tables import write_table
    from panther.store import check_output

    if output is not None:
        _check_ending(output)
        check_output(output, embeddings, table)
    found = judge(
        _named(embeddings),
        table,
        label,
        on=None if on is None else _words(on),
        at=_numbers(at),
        classes=None if classes is None else _words(classes),
        leave_site_out=leave_site_out,
        columns=common.columns(slide_column, patient_column, site_column),
        bootstrap=bootstrap,
        seed=seed,
    )
    if output is not None:
        write_table(output, found.summary)
    result = {
        "output": None if output is None else str(output),
        "summary": _plain(found.summary),
        "comparisons": _plain(found.comparisons),
    }
    common.report(result, _lines(found), {}, as_json=as_json, notes=found.notes)


def _check_ending(output: Path) -> None:
    from panther.errors import InputError

    if output.suffix not in (".csv", ".parquet"):
        raise InputError(f"{output}: the table is written as .csv or .parquet; give the output one of these endings.")


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _numbers(text: str) -> list[int]:
    from panther.errors import InputError

    try:
        return [int(word) for word in _words(text)]
    except ValueError as error:
        raise InputError(f"--at {text!r}: expected are whole numbers parted by commas, e.g. 1,3,5.") from error


def _named(files: list[Path]) -> dict[str, Path]:
    """Files by their names, or by their whole paths where names repeat."""
    from panther.errors import InputError

    stems = [file.stem for file in files]
    named = dict(zip(stems if len(set(stems)) == len(stems) else map(str, files), files, strict=True))
    if len(named) < len(files):
        raise InputError(f"{files[0]}: is given more than once; to compare ways of one file give --on pi,mixture.")
    return named


def _plain(table: Any) -> list[dict[str, Any]]:
    return [
        {name: None if value != value else value for name, value in row.items()} for row in table.to_dict("records")
    ]


def _lines(found: Any) -> list[str]:
    """All slides with intervals and chance; classes with their values alone, the rest is in the table and in --json."""
    lines = []
    for name, rows in found.summary.groupby("representation", sort=False):
        lines.append(f"{name}: {rows['queries'].iloc[0]} slides asked about")
        lines += [f"  {_metric(row)}" for row in rows[rows["group"] == "all"].to_dict("records")]
        for group, part in rows[rows["group"] != "all"].groupby("group", sort=False):
            values = [f"{TITLES[row['metric']]}@{row['k']} {row['value']:.3f}" for row in part.to_dict("records")]
            lines.append(f"  {group}: {', '.join(values)}")
    for row in found.comparisons.to_dict("records"):
        if row["group"] == "all":
            lines.append(
                f"{TITLES[row['metric']]}@{row['k']}: {row['representation']} less {row['against']} {row['difference']:+.3f} "
                f"[{row['ci_low']:+.3f}, {row['ci_high']:+.3f}], p {row['p_value']:.3g}, Holm {row['p_holm']:.3g}"
            )
    return lines


TITLES = {"acc": "Acc", "mmv": "mMV", "map": "mAP"}


def _metric(row: dict[str, Any]) -> str:
    interval = f" [{row['ci_low']:.3f}, {row['ci_high']:.3f}]" if row["ci_low"] == row["ci_low"] else ""
    return f"{TITLES[row['metric']]}@{row['k']:<3} {row['value']:.3f}{interval}  chance {row['chance']:.3f}"

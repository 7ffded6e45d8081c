"""Results as the paper prints them: methods down, tests across, the best in bold, the second best underlined."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from panther.charts.display_names import method_title
from panther.errors import listed
from panther.evaluation.intervals import CAPTION
from panther.evaluation.metrics import LOWER_IS_BETTER, metric_title
from panther.evaluation.verdicts import about_perfect, about_selection, best_rows, chance, winners, worst_groups
from panther.storage.files import write_text
from panther.storage.tables import write_table
from panther.study.parts import NOT_NAMED

SURENESS = ("calibration", "reliability", "prediction_sets")  # of classes and values
RETRIEVAL = ("retrieval", "retrieval_comparisons")  # where the study asks for it
SHUFFLE = "shuffle"  # likewise
WRITTEN = (
    "metrics.*",
    "predictions.*",
    "summary.*",
    "comparisons.*",
    "gains.*",
    "table.md",
    "table.tex",
    *(f"{name}.*" for name in (*SURENESS, *RETRIEVAL, SHUFFLE)),
)
FACTORS = {
    "encoder": "encoder",
    "loss": "loss",
    "n_prototypes": "C",
    "train_size": "training size",
}  # shown where they vary
DOES_NOT_APPLY = (0, NOT_NAMED)  # no prototypes; no encoder of patches
MOST_SUBGROUPS = 6  # columns of a table for people; summary.csv has all
ERRORS = tuple(f", {metric_title(name)}" for name in LOWER_IS_BETTER)  # ends of columns where less is better


def layout(summary: pd.DataFrame, metrics: list[str]) -> pd.DataFrame:
    """Rows: methods with their heads; columns: test part, subgroup and metric; cells: (mean, std, low, high)."""
    shown = summary[summary["metric"].isin(metrics)]
    if shown["subgroup"].nunique() > 1 + MOST_SUBGROUPS:
        shown = shown[shown["subgroup"] == ""]
    rows = row_names(shown, varying_factors(shown))
    columns = [
        f"{part_name(row['part'], row['subgroup'])}, {metric_title(row['metric'])}" for _, row in shown.iterrows()
    ]
    cells = list(zip(shown["mean"], shown["std"], shown["ci_low"], shown["ci_high"], strict=True))
    table = pd.DataFrame({"row": rows, "column": columns, "cell": cells})
    wide = table.pivot_table(index="row", columns="column", values="cell", aggfunc="first", sort=False)
    tests = sorted({(part, group) for part, group in zip(shown["part"], shown["subgroup"], strict=True)})
    ordered = [f"{part_name(part, group)}, {metric_title(metric)}" for part, group in tests for metric in metrics]
    return wide.loc[list(dict.fromkeys(rows)), [column for column in ordered if column in wide.columns]]


def verdicts(summary: pd.DataFrame, metrics: list[str]) -> list[str]:
    """For each test and metric who is best, ties included, and what perfect scores do not say."""
    shown = summary[(summary["subgroup"] == "") & summary["metric"].isin(metrics)]
    shown = shown.assign(row=row_names(shown, varying_factors(shown)))
    said = []
    for part in sorted(set(shown["part"])):
        for metric in metrics:
            best = best_rows(shown[(shown["part"] == part) & (shown["metric"] == metric)])
            if best.empty:
                continue
            name = f"{part_name(part)}, {metric_title(metric)}"
            of, selection = best["of_rows"].iloc[0], about_selection(best.iloc[0])
            what = "Best mean" if pd.isna(of) else f"Best of {of:.0f} rows"
            score = f"{best['mean'].max():.3f}, {winners(list(best['row']))}"
            said.append(f"{what} ({name}): {score}{selection and '; '}{selection}.")
            notes = dict.fromkeys(about_perfect(row) for _, row in best.iterrows())
            said += [f"{name} 1.000: {note}." for note in notes if note]
            said += _by_groups(summary, best, name)
    return said


def _by_groups(summary: pd.DataFrame, best: pd.DataFrame, name: str) -> list[str]:
    """Of the best method, by each column: the worst group."""
    first = best.iloc[0]
    same = ["encoder", "method", "head", "loss", "n_prototypes", "train_size", "part", "metric"]
    own = summary[(summary[same] == first[same]).all(axis=1)]
    return [f"{first['row']} ({name}): {said[:1].lower()}{said[1:]}" for said in worst_groups(own)]


def below_chance(references: pd.DataFrame, predictions: pd.DataFrame, metrics: list[str]) -> list[str]:
    """Rows of reference whose score is below chance, from which differences overstate."""
    shown = references[(references["subgroup"] == "") & references["metric"].isin(metrics)]
    said = []
    for (_, row), name in zip(shown.iterrows(), row_names(shown, varying_factors(shown)), strict=True):
        guess = chance(row["metric"], predictions[predictions["part"] == row["part"]])
        if guess is not None and row["mean"] < guess - 0.0005:
            where = f"{part_name(row['part'])}, {metric_title(row['metric'])}"
            said.append(
                f"The reference {name} ({where}) is below chance: {row['mean']:.3f}, chance {guess:.3f}; differences from it overstate."
            )
    return said


def one_class(predictions: pd.DataFrame) -> list[str]:
    """Rows that predict one and the same class for all patients, in half of the folds or more."""
    if "predicted" not in predictions:
        return []
    said, varying = [], varying_factors(predictions)
    folds = ["method", "head", *FACTORS, "part", "seed", "fold"]
    alone = predictions.groupby(folds, sort=False)["predicted"].agg(["nunique", "first"]).reset_index()
    alone = alone.assign(row=row_names(alone, varying))
    for (row, part), own in alone.groupby(["row", "part"], sort=False):
        flat = own[own["nunique"] == 1]
        if 2 * len(flat) >= len(own):
            where = "" if len(own) == 1 else f" in {len(flat)} of {len(own)} trainings"
            said.append(
                f"{row} ({part_name(str(part))}): all patients predicted as {listed(sorted(set(flat['first'])))}{where}."
            )
    return said


def markdown(summary: pd.DataFrame, metrics: list[str]) -> str:
    """Mean (± std over folds and seeds) and the 95 % interval over patients, and what is to be read from it."""
    table = layout(summary, metrics)
    lines = ["| method | " + " | ".join(table.columns) + " |", "|---" * (len(table.columns) + 1) + "|"]
    marks = {column: _ranks(table[column]) for column in table.columns}
    for name, row in table.iterrows():
        cells = [
            _marked(_text(row[c]), marks[c].get(str(name)), "**{}**".format, "<u>{}</u>".format) for c in table.columns
        ]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    notes = [*verdicts(summary, metrics), *([CAPTION] if summary["ci_low"].notna().any() else [])]
    return "\n".join([*lines, "", *(f"- {note}" for note in notes)]) + "\n"


def latex(summary: pd.DataFrame, metrics: list[str]) -> str:
    """Table for a paper (booktabs)."""
    table = layout(summary, metrics)
    marks = {column: _ranks(table[column]) for column in table.columns}
    lines = [r"\begin{tabular}{l" + "c" * len(table.columns) + "}", r"\toprule"]
    lines.append("Method & " + " & ".join(_escaped(c) for c in table.columns) + r" \\" + "\n" + r"\midrule")
    for name, row in table.iterrows():
        cells = []
        for c in table.columns:
            value = (
                "--" if not isinstance(row[c], tuple) else f"{row[c][0]:.3f}" + _spread(row[c][1], r" ($\pm$ {:.3f})")
            )
            cells.append(_marked(value, marks[c].get(str(name)), r"\textbf{{{}}}".format, r"\underline{{{}}}".format))
        lines.append(f"{_escaped(str(name))} & " + " & ".join(cells) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def write_tables(tables: Mapping[str, pd.DataFrame], folder: Path, metrics: list[str], printed: str) -> list[Path]:
    """Write all tables: CSV and Parquet for machines, the summary as LaTeX and as ``printed`` (Markdown) for people."""
    written = []
    for name, table in tables.items():
        for suffix in (".csv", ".parquet"):
            written.append(folder / f"{name}{suffix}")
            write_table(written[-1], table)
    summary = tables["summary"]
    for name, text in (("table.md", printed), ("table.tex", latex(summary, metrics))):
        write_text(folder / name, text)
        written.append(folder / name)
    return written


def varying_factors(table: pd.DataFrame) -> list[str]:
    """Factors that tell rows apart beside method and head."""
    return [name for name in FACTORS if (table[name][~table[name].isin(DOES_NOT_APPLY)]).nunique() > 1]


def row_names(table: pd.DataFrame, varying: list[str]) -> list[str]:
    """What each row's cell is called: method, head, and the factors that vary."""
    return [_row_name(row, varying) for _, row in table.iterrows()]


def _row_name(row: pd.Series, varying: list[str]) -> str:
    return f"{method_title(row['method'])}{told_apart(row, varying)}"


def told_apart(row: Mapping[str, Any] | pd.Series, varying: list[str]) -> str:
    """What stands after the method in the name of a row: its head, and the factors that vary."""
    head = "" if row["head"] == "own" else f" + {row['head']}"
    extra = ", ".join(f"{FACTORS[name]} {row[name]}" for name in varying if row[name] not in DOES_NOT_APPLY)
    return head + (f" [{extra}]" if extra else "")


def part_name(part: str, subgroup: str = "") -> str:
    """What a test is called: `test`, or the external cohort, with the subgroup."""
    name = part.removeprefix("test_") if part != "test" else "test"
    return f"{name} ({subgroup})" if subgroup else name


def _ranks(column: pd.Series) -> dict[str, int]:
    """Row -> 0 for the best, 1 for the second best mean, as printed; equal numbers share a rank."""
    means = {str(name): round(cell[0], 3) for name, cell in column.items() if isinstance(cell, tuple)}
    order = sorted(set(means.values()), reverse=not str(column.name).endswith(ERRORS))[:2]
    return {name: order.index(value) for name, value in means.items() if value in order} if len(means) > 1 else {}


def _marked(text: str, rank: int | None, best: Callable[[str], str], second: Callable[[str], str]) -> str:
    return text if rank is None else (best, second)[rank](text)


def _text(cell: object) -> str:
    if not isinstance(cell, tuple):
        return "-"
    mean, std, low, high = cell
    interval = f" [{low:.3f}, {high:.3f}]" if low == low else ""
    return f"{mean:.3f}" + _spread(std, " (±{:.3f})") + interval


def _spread(std: float, form: str) -> str:
    return form.format(std) if std == std else ""


def _escaped(text: str) -> str:
    for character in ("\\", "&", "%", "#", "_", "{", "}"):
        text = text.replace(character, f"\\{character}" if character != "\\" else r"\textbackslash ")
    return text

"""Results as the paper prints them: methods down, tests across, the best in bold, the second best underlined."""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
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
SHUFFLE = "shuffle"  # with that key of the study
ALWAYS, OPTIONAL = ("metrics", "predictions", "summary", "comparisons"), (*SURENESS, SHUFFLE)
WRITTEN = (*(f"{n}.*" for n in (*ALWAYS, "gains")), "table.md", "table.tex", *(f"{n}.*" for n in OPTIONAL))
# shown where they vary
FACTORS = {"encoder": "encoder", "loss": "loss", "n_prototypes": "C", "train_size": "training size"}
DOES_NOT_APPLY = (0, NOT_NAMED)  # no prototypes; no encoder of patches
LATEX = str.maketrans({"\\": r"\textbackslash ", **{character: f"\\{character}" for character in "&%#_{}"}})
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
    """For each test and metric the best rows, with ties, and notes on perfect scores."""
    shown = summary[(summary["subgroup"] == "") & summary["metric"].isin(metrics)]
    shown = shown.assign(row=row_names(shown, varying_factors(shown)))
    lines = []
    for part, metric in itertools.product(sorted(set(shown["part"])), metrics):
        best = best_rows(shown[(shown["part"] == part) & (shown["metric"] == metric)])
        if best.empty:
            continue
        name, first = f"{part_name(part)}, {metric_title(metric)}", best.iloc[0]
        selection = about_selection(first)
        what = "Best mean" if pd.isna(first["of_rows"]) else f"Best of {first['of_rows']:.0f} rows"
        score = f"{best['mean'].max():.3f}, {winners(list(best['row']))}"
        lines.append(f"{what} ({name}): {score}{selection and '; '}{selection}.")
        notes = dict.fromkeys(about_perfect(row) for _, row in best.iterrows())
        lines += [f"{name} 1.000: {note}." for note in notes if note]
        same = ["encoder", "method", "head", "loss", "n_prototypes", "train_size", "part", "metric"]
        by_group = worst_groups(summary[(summary[same] == first[same]).all(axis=1)])
        lines += [f"{first['row']} ({name}): {text[:1].lower()}{text[1:]}" for text in by_group]
    return lines


def below_chance(references: pd.DataFrame, predictions: pd.DataFrame, metrics: list[str]) -> list[str]:
    """Reference rows with a score below chance, which inflate differences."""
    shown = references[(references["subgroup"] == "") & references["metric"].isin(metrics)]
    lines = []
    for (_, row), name in zip(shown.iterrows(), row_names(shown, varying_factors(shown)), strict=True):
        guess = chance(row["metric"], predictions[predictions["part"] == row["part"]])
        if guess is not None and row["mean"] < guess - 0.0005:
            where = f"{part_name(row['part'])}, {metric_title(row['metric'])}"
            lines.append(
                f"The reference {name} ({where}) is below chance: {row['mean']:.3f}, chance {guess:.3f}; differences from it overstate."
            )
    return lines


def one_class(predictions: pd.DataFrame) -> list[str]:
    """Rows that predict one class for all patients, in half of the folds or more."""
    if "predicted" not in predictions:
        return []
    lines, varying = [], varying_factors(predictions)
    folds = ["method", "head", *FACTORS, "part", "seed", "fold"]
    alone = predictions.groupby(folds, sort=False)["predicted"].agg(["nunique", "first"]).reset_index()
    for (row, part), trainings in alone.assign(row=row_names(alone, varying)).groupby(["row", "part"], sort=False):
        flat = trainings[trainings["nunique"] == 1]
        if 2 * len(flat) >= len(trainings):
            where = "" if len(trainings) == 1 else f" in {len(flat)} of {len(trainings)} trainings"
            classes = listed(sorted(set(flat["first"])))
            lines.append(f"{row} ({part_name(str(part))}): all patients predicted as {classes}{where}.")
    return lines


def markdown(summary: pd.DataFrame, metrics: list[str]) -> str:
    """Mean (± std over folds and seeds) and the 95 % interval over patients, with notes."""
    table = layout(summary, metrics)
    lines = ["| method | " + " | ".join(table.columns) + " |", "|---" * (len(table.columns) + 1) + "|"]
    for name, cells in _cells(table, " (±{:.3f})", "-", ("**{}**", "<u>{}</u>"), with_limits=True):
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    notes = [*verdicts(summary, metrics), *([CAPTION] if summary["ci_low"].notna().any() else [])]
    return "\n".join([*lines, "", *(f"- {note}" for note in notes)]) + "\n"


def latex(summary: pd.DataFrame, metrics: list[str]) -> str:
    """Table for a paper (booktabs)."""
    table = layout(summary, metrics)
    lines = [r"\begin{tabular}{l" + "c" * len(table.columns) + "}", r"\toprule"]
    lines.append(
        "Method & " + " & ".join(name.translate(LATEX) for name in table.columns) + r" \\" + "\n" + r"\midrule"
    )
    for name, cells in _cells(table, r" ($\pm$ {:.3f})", "--", (r"\textbf{{{}}}", r"\underline{{{}}}")):
        lines.append(f"{name.translate(LATEX)} & " + " & ".join(cells) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def _cells(
    table: pd.DataFrame, spread: str, missing: str, marks: tuple[str, str], *, with_limits: bool = False
) -> Iterator[tuple[str, list[str]]]:
    """Each row with the texts of its cells; the best and the second best mean of a column, as printed, are marked."""
    best: dict[str, list[float]] = {}
    for column in table.columns:
        means = {round(cell[0], 3) for cell in table[column] if isinstance(cell, tuple)}
        several = sum(isinstance(cell, tuple) for cell in table[column]) > 1
        best[column] = sorted(means, reverse=not column.endswith(ERRORS))[:2] if several else []
    for name, row in table.iterrows():
        texts = []
        for column, cell in zip(table.columns, row, strict=True):
            if not isinstance(cell, tuple):
                texts.append(missing)
                continue
            mean, std, low, high = cell
            text = f"{mean:.3f}" + (spread.format(std) if std == std else "")
            text += f" [{low:.3f}, {high:.3f}]" if with_limits and low == low else ""
            rank = best[column].index(round(mean, 3)) if round(mean, 3) in best[column] else None
            texts.append(text if rank is None else marks[rank].format(text))
        yield str(name), texts


def write_tables(tables: Mapping[str, pd.DataFrame], folder: Path, metrics: list[str], printed: str) -> list[Path]:
    """Write all tables: CSV and Parquet for machines, the summary as LaTeX and as ``printed`` (Markdown) for people."""
    files = {folder / f"{name}{end}": table for name, table in tables.items() for end in (".csv", ".parquet")}
    texts = {folder / "table.md": printed, folder / "table.tex": latex(tables["summary"], metrics)}
    for path, table in files.items():
        write_table(path, table)
    for path, text in texts.items():
        write_text(path, text)
    return [*files, *texts]


def varying_factors(table: pd.DataFrame) -> list[str]:
    """Factors that differ between rows, beside method and head."""
    return [name for name in FACTORS if (table[name][~table[name].isin(DOES_NOT_APPLY)]).nunique() > 1]


def row_names(table: pd.DataFrame, varying: list[str]) -> list[str]:
    """Name of each row's cell: method, head, and the factors that vary."""
    return [f"{method_title(row['method'])}{row_suffix(row, varying)}" for _, row in table.iterrows()]


def row_suffix(row: Mapping[str, Any] | pd.Series, varying: list[str]) -> str:
    """Head and varying factors, which follow the method in the name of a row."""
    head = "" if row["head"] == "own" else f" + {row['head']}"
    extra = ", ".join(f"{FACTORS[name]} {row[name]}" for name in varying if row[name] not in DOES_NOT_APPLY)
    return head + (f" [{extra}]" if extra else "")


def part_name(part: str, subgroup: str = "") -> str:
    """Name of a test: `test`, or the external cohort, with the subgroup."""
    name = part.removeprefix("test_") if part != "test" else "test"
    return f"{name} ({subgroup})" if subgroup else name


EXACTLY = "exactly all of it survives, because where patches lie is not read"


def shuffle_verdict(row: pd.Series) -> str:
    """Effect of shuffling on a score, in words."""
    if row["shuffles"] == 0:
        return EXACTLY
    lost, low, high = row["difference"], row["ci_low"], row["ci_high"]
    if row["metric"] in LOWER_IS_BETTER:
        lost, low, high = -lost, -high, -low
    interval = f"95 % interval {low:.3f} to {high:.3f}"
    scores = f"from {row['score']:.3f} to {row['shuffled']:.3f}"
    if np.isnan(lost) or np.isnan(low):
        return f"{scores}; there is no interval for it"
    if low > 0:
        return f"it loses {lost:.3f} ({interval}), {scores}: it used where patches lie"
    if high < 0:
        return f"it is better by {-lost:.3f} without their places ({interval} for the loss), {scores}"
    return f"no loss is shown: {lost:.3f} ({interval}), {scores}"


def shuffle_sentences(table: pd.DataFrame, metrics: Iterable[str]) -> list[str]:
    """The shuffle test in sentences: one of all rows that do not read coordinates, one per metric of each other row."""
    if table.empty:
        return []
    shown = table[table["metric"].isin(list(metrics))]
    shown = shown.assign(row=row_names(shown, varying_factors(shown)))
    unmoved = list(dict.fromkeys(shown[shown["shuffles"] == 0]["row"]))
    unread = [f"Shuffled tissue, {listed(unmoved)}: {EXACTLY}."] if unmoved else []
    return unread + [
        f"Shuffled tissue, {row['row']} ({part_name(row['part'])}, {metric_title(row['metric'])}): {row['words']}."
        for _, row in shown[shown["shuffles"] > 0].iterrows()
    ]

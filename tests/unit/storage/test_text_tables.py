"""Tables as spreadsheets write them: commas, semicolons or tabs between cells, and numbers with a comma.

These are read where only a decimal can be meant, and refused where it may be one of thousands.
"""

import pandas as pd
import pytest

from panther.cohort.covariates import as_covariate, fit_covariates
from panther.cohort.load import load_cohort
from panther.errors import InputError
from panther.evaluation.verdicts import group_names
from panther.explain.shares import factor_of
from panther.slides import read_mpp_table
from panther.storage.tables import as_table, with_types


def written(folder, separator=",", **columns):
    """A table of four slides; cells that hold the separator in quotes."""
    table = {"slide_id": list("abcd"), "event": list("0101"), **columns}
    lines = [list(table), *zip(*table.values(), strict=True)]
    text = "\n".join(separator.join(f'"{c}"' if "," in c and separator == "," else c for c in line) for line in lines)
    (folder / "t.csv").write_text(f"{text}\n")
    return folder / "t.csv"


@pytest.mark.parametrize("separator", [",", "\t"])
def test_decimal_commas_are_decimals_in_columns_of_numbers(tmp_path, separator):
    path = written(tmp_path, separator, age=["61,5", "60", "1,234", "NA"], months=["12,5", "3", "0,5", "10"])
    assert list(load_cohort(path, time="months", event="event").y[:, 0]) == [12.5, 3, 0.5, 10]
    assert list(load_cohort(path, value="age").y) == [61.5, 60, 1.234]
    table = as_table(path)
    covariates, _ = fit_covariates(table, [as_covariate("months")])
    assert covariates.columns[0].levels is None
    assert covariates.encode(table)[:, 0].argmax() == 0
    assert factor_of(table, "months", "t.csv", {i: str(i) for i in table.index}, categories=False).ordered
    assert with_types(table)["age"].dtype == float


def test_groups_resolutions_and_labels_with_commas(tmp_path):
    names = group_names(pd.Series([f"{age},5" for age in range(20, 50)]), "age")
    assert sorted(set(names)) == ["30.17 to 39.83", "above 39.83", "up to 30.17"]
    (tmp_path / "mpp.csv").write_text('wsi,mpp\na.svs,"0,25"\nb.svs,"0,5025"\n')
    assert read_mpp_table(tmp_path / "mpp.csv") == {"a.svs": 0.25, "b.svs": 0.5025}
    path = written(tmp_path, gleason=["3,4", "4,3", "3,4", "4,3"])
    assert load_cohort(path, label="gleason").target.names == ("3,4", "4,3")


READ = {
    "survival": lambda path: load_cohort(path, time="size", event="event"),
    "value": lambda path: load_cohort(path, value="size"),
    "covariate": lambda path: fit_covariates(as_table(path), [as_covariate("size")]),
    "group": lambda path: group_names(as_table(path)["size"], "size"),
    "atlas": lambda path: factor_of(as_table(path), "size", "t.csv", {}, categories=False),
}


@pytest.mark.parametrize("read", READ.values(), ids=READ)
@pytest.mark.parametrize(
    "cells", [["1,234", "12", "5,678", "NA"], ["12,5", "61.5", "3", "4"]], ids=["thousands", "both"]
)
def test_ambiguous_commas_are_refused_in_columns_of_numbers(tmp_path, read, cells):
    path = written(tmp_path, size=cells)
    with pytest.raises(InputError, match="size has"):
        read(path)
    assert list(as_table(path)["size"]) == cells  # of no concern to those who do not ask for it
    assert list(with_types(as_table(path))["size"].dropna()) == [cell for cell in cells if cell != "NA"]


ROWS = [["slide_id", "age, years", "note;"], ["007", "61", "a, b"], ["x;y", "59", ""]]


def written_rows(path, rows, separator):
    cells = [[f'"{cell}"' if separator in cell else cell for cell in row] for row in rows]
    path.write_text("".join(f"{separator.join(row)}\n" for row in cells))
    return path


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".txt"])
@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_the_header_tells_what_is_between_cells_whatever_the_ending(tmp_path, separator, ending):
    read = as_table(written_rows(tmp_path / f"t{ending}", ROWS, separator))
    assert [list(read.columns), *read.to_numpy().tolist()] == ROWS


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_a_line_with_too_many_cells_is_named(tmp_path, separator):
    (tmp_path / "t.csv").write_text("slide_id,label\na,x\nb,y,z".replace(",", separator))
    with pytest.raises(InputError, match=r"t\.csv: .*line 3"):
        as_table(tmp_path / "t.csv")


def test_decimal_commas_of_a_semicolon_file_are_numbers_where_the_whole_column_is(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("slide_id;age;x;y;note\na;61,5;-,5;1,5E-05;3,4\nb;60;NA;2;high\n")
    read = as_table(path)
    assert read.iloc[:, 1:].to_numpy().tolist() == [["61.5", "-.5", "1.5E-05", "3,4"], ["60", "NA", "2", "high"]]
    assert list(with_types(read)["x"].fillna(9)) == [-0.5, 9]
    assert list(load_cohort(path, value="age").y) == [61.5, 60]
    (tmp_path / "t.csv").write_text("slide_id;age;date;label\na;61.5;01.02.2003;1,2,3\nb;1.234;05.06.2007;1,2\n")
    assert as_table(tmp_path / "t.csv").iloc[0].tolist() == ["a", "61.5", "01.02.2003", "1,2,3"]  # no decimal comma


@pytest.mark.parametrize("other", ["61.5", "1.234,5"])
def test_two_ways_to_write_numbers_in_one_column_are_refused(tmp_path, other):
    (tmp_path / "t.csv").write_text(f"slide_id;age\na;12,5\nb;{other}\n")
    with pytest.raises(InputError, match=rf"t\.csv: age has numbers such as 12,5 and {other}"):
        as_table(tmp_path / "t.csv")

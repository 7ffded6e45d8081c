"""Tables as spreadsheets write them: commas, semicolons or tabs between cells, a decimal comma where cells are apart by semicolons."""

import pandas as pd
import pytest

from panther.cohort.load import load_cohort
from panther.errors import InputError
from panther.storage.tables import as_table, with_types

ROWS = [["slide_id", "age, years", "note;"], ["007", "61", "a, b"], ["x;y", "59", ""]]


def written(path, rows, separator):
    cells = [[f'"{cell}"' if separator in cell else cell for cell in row] for row in rows]
    path.write_text("".join(f"{separator.join(row)}\n" for row in cells))
    return path


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".txt"])
@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_the_header_tells_what_is_between_cells_whatever_the_ending(tmp_path, separator, ending):
    read = as_table(written(tmp_path / f"t{ending}", ROWS, separator))
    assert [list(read.columns), *read.to_numpy().tolist()] == ROWS


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_table_of_one_column_and_blank_lines_before_the_header_are_read(tmp_path, mark):
    (tmp_path / "t.csv").write_text(f"{mark}\n\nslide_id\na;b\n", encoding="utf-8")
    assert as_table(tmp_path / "t.csv").to_dict("list") == {"slide_id": ["a;b"]}


@pytest.mark.parametrize(("separator", "called"), [(",", "comma"), (";", "semicolon"), ("\t", "tab")])
def test_a_line_with_too_many_cells_is_named(tmp_path, separator, called):
    lines = ["slide_id,label", "a,x", "b,y,z"]
    (tmp_path / "t.csv").write_text("\n".join(lines).replace(",", separator))
    with pytest.raises(InputError, match=rf"t\.csv: line 3 has 3 cells but the header 2; put .* a {called} in quotes"):
        as_table(tmp_path / "t.csv")


def test_decimal_commas_of_a_semicolon_file_are_numbers_where_the_whole_column_is(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("slide_id;age;x;y;note\na;61,5;-,5;1,5E-05;3,4\nb;60;NA;2;high\n")
    read = as_table(path)
    assert read.iloc[:, 1:].to_numpy().tolist() == [["61.5", "-.5", "1.5E-05", "3,4"], ["60", "NA", "2", "high"]]
    assert list(with_types(read)["x"].fillna(9)) == [-0.5, 9]
    assert list(load_cohort(path, value="age").y) == [61.5, 60]


def test_columns_of_semicolon_files_without_a_decimal_comma_stay_as_they_are(tmp_path):
    (tmp_path / "t.csv").write_text("slide_id;age;date;label\na;61.5;01.02.2003;1,2,3\nb;1.234;05.06.2007;1,2\n")
    assert as_table(tmp_path / "t.csv").iloc[0].tolist() == ["a", "61.5", "01.02.2003", "1,2,3"]


@pytest.mark.parametrize("other", ["61.5", "1.234,5"])
def test_two_ways_to_write_numbers_in_one_column_are_refused(tmp_path, other):
    (tmp_path / "t.csv").write_text(f"slide_id;age\na;12,5\nb;{other}\n")
    with pytest.raises(InputError, match=rf"t\.csv: age has numbers such as 12,5 and {other}"):
        as_table(tmp_path / "t.csv")


def test_a_comma_in_quotes_is_no_decimal_comma_in_a_file_with_commas(tmp_path):
    pd.DataFrame({"slide_id": ["a", "b"], "income": ["1,234", "5,678"]}).to_csv(tmp_path / "t.csv", index=False)
    assert list(as_table(tmp_path / "t.csv")["income"]) == ["1,234", "5,678"]  # thousands, as likely as not

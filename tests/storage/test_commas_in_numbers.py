"""Numbers with a comma, between commas and tabs: read where only a decimal can be meant, refused where it may be one of thousands."""

import pandas as pd
import pytest

from panther.cohort.covariates import as_covariate, fit_covariates
from panther.cohort.load import load_cohort
from panther.errors import InputError
from panther.evaluation.verdicts import group_names
from panther.explain.shares import factor_of
from panther.slides import read_mpp_table
from panther.storage.tables import as_table, with_types


def written(folder, separator=",", first="", **columns):
    """A table of four slides; cells that hold the separator in quotes."""
    table = {"slide_id": list("abcd"), "event": list("0101"), **columns}
    lines = [list(table), *zip(*table.values(), strict=True)]
    text = "\n".join(separator.join(f'"{c}"' if "," in c and separator == "," else c for c in line) for line in lines)
    (folder / "t.csv").write_text(f"{first}{text}\n")
    return folder / "t.csv"


@pytest.mark.parametrize("separator", [",", "\t"])
def test_decimal_commas_are_decimals_where_numbers_are_wanted(tmp_path, separator):
    path = written(tmp_path, separator, age=["61,5", "60", "1,234", "NA"], months=["12,5", "3", "0,5", "10"])
    assert list(load_cohort(path, time="months", event="event").y[:, 0]) == [12.5, 3, 0.5, 10]
    assert list(load_cohort(path, value="age").y) == [61.5, 60, 1.234]
    table = as_table(path)
    covariates, _ = fit_covariates(table, [as_covariate("months")])
    assert covariates.columns[0].levels is None
    assert covariates.encode(table)[:, 0].argmax() == 0
    assert factor_of(table, "months", "t.csv", {i: str(i) for i in table.index}, categories=False).ordered
    assert with_types(table)["age"].dtype == float


def test_many_numbers_with_commas_are_cut_into_thirds():
    names = group_names(pd.Series([f"{age},5" for age in range(20, 50)]), "age")
    assert sorted(set(names)) == ["30.17 to 39.83", "above 39.83", "up to 30.17"]


def test_labels_stay_word_for_word(tmp_path):
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
    ("cells", "sentence"),
    [
        (["1,234", "12", "5,678", "NA"], "size has numbers such as 1,234, whose comma may be of thousands"),
        (["12,5", "61.5", "3", "4"], "size has numbers such as 12,5 and 61.5"),
    ],
    ids=["thousands", "both"],
)  # fmt: skip
def test_what_may_be_read_in_two_ways_is_refused_where_numbers_are_wanted(tmp_path, read, cells, sentence):
    path = written(tmp_path, size=cells)
    with pytest.raises(InputError, match=sentence):
        read(path)
    assert list(as_table(path)["size"]) == cells  # of no concern to those who do not ask for it
    assert list(with_types(as_table(path))["size"].dropna()) == [cell for cell in cells if cell != "NA"]


def test_a_resolution_with_a_comma_is_one(tmp_path):
    (tmp_path / "mpp.csv").write_text('wsi,mpp\na.svs,"0,25"\nb.svs,"0,5025"\n')
    assert read_mpp_table(tmp_path / "mpp.csv") == {"a.svs": 0.25, "b.svs": 0.5025}


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("line", ["sep={}\n", '"sep={}"\r\n', "SEP={}\n\n"])
def test_excels_line_before_the_header_tells_the_separator(tmp_path, mark, separator, line):
    """Also where the header would tell another one."""
    path = written(tmp_path, separator, mark + line.format(separator), note=["x"] * 4)
    assert list(as_table(path).columns) == ["slide_id", "event", "note"]
    assert list(as_table(path)["slide_id"]) == list("abcd")
    path.write_text(f"{mark}sep={separator}\nslide_id\na\nb\n")
    assert as_table(path).to_dict("list") == {"slide_id": ["a", "b"]}


def test_with_excels_line_a_semicolon_file_has_decimal_commas_too(tmp_path):
    path = written(tmp_path, ";", "sep=;\n", age=["61,5", "60", "1,234", ""])
    assert list(as_table(path)["age"]) == ["61.5", "60", "1.234", ""]


def test_a_line_that_is_too_long_is_numbered_with_excels_line(tmp_path):
    (tmp_path / "t.csv").write_text("sep=,\nslide_id,label\na,x\nb,y,z\n")
    with pytest.raises(InputError, match="line 4 has 3 cells but the header 2"):
        as_table(tmp_path / "t.csv")


def test_another_sign_in_excels_line_is_refused(tmp_path):
    (tmp_path / "t.csv").write_text("sep=|\nslide_id|label\na|x\n")
    with pytest.raises(InputError, match=r"its first line says sep='\|', expected a comma"):
        as_table(tmp_path / "t.csv")

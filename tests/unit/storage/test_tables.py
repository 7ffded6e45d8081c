"""Clinical tables: ids are strings, columns are found by the field's aliases, the slides of a patient belong together."""

import csv

import numpy as np
import pandas as pd
import pytest
from layouts import features, write

from panther.errors import InputError
from panther.storage.bags import list_bags
from panther.storage.clinical import Columns, read_clinical, select_slides
from panther.storage.tables import as_table, with_types

REAL = [
    "survival/TCGA_KIRC_overall_survival_k=0/train.csv",
    "survival/TCGA_KIRC_overall_survival_k=0/test_cptac.csv",
    "survival/TCGA_KIRC_overall_survival_k=4/test.csv",
    "classification/NSCLC/val.csv",
    "classification/ebrains/test.csv",
    "classification/panda/val.csv",
]


def table(path, text):
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", REAL)
def test_real_tables_are_read_as_they_are(shared_data, name):
    path = shared_data / "tables" / name
    read, raw = read_clinical(path), pd.read_csv(path, dtype=str, keep_default_na=False)
    slides = raw["FILENAME" if "FILENAME" in raw else "slide_id"]
    patients = raw["PATIENT" if "PATIENT" in raw else "case_id"]
    assert list(read.rows.index) == read.who.slide == list(slides)
    assert read.who.patient == list(patients)
    pd.testing.assert_frame_equal(read.rows.reset_index(drop=True), raw)


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
def test_ids_stay_strings_even_when_they_look_like_numbers(tmp_path, suffix):
    content = pd.DataFrame({"slide_id": ["007", "010", "1e5"], "case_id": ["01", "02", "02"], "age": [1, 2, 3]})
    path = tmp_path / f"cohort{suffix}"
    if suffix == ".parquet":
        content.to_parquet(path)
    else:
        content.to_csv(path, sep="\t" if suffix == ".tsv" else ",", index=False)
    read = read_clinical(path)
    assert read.who.slide == ["007", "010", "1e5"]
    assert read.who.patient == ["01", "02", "02"]
    assert list(read.rows["age"]) == ["1", "2", "3"]


def test_a_data_frame_and_its_file_are_the_same_table(tmp_path):
    frame = pd.DataFrame({"slide_id": ["007", "8"], "grade": ["None", None], "age": [61, 62], "site": ["a", "b"]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    pd.testing.assert_frame_equal(as_table(frame), as_table(tmp_path / "t.csv"))
    by_slide = frame.set_index("slide_id")  # as many notebooks keep it
    assert read_clinical(by_slide).who.slide == ["007", "8"]
    assert read_clinical(frame.assign(split=["train", "test"]), "test").who.slide == ["8"]


def test_numbers_are_numbers_on_request_and_a_class_called_none_is_no_gap():
    words = pd.DataFrame({"age": ["61", "", "59"], "code": ["007", "8", "9"], "grade": ["None", "NA", "[Unknown]"]})
    read = with_types(words.assign(n=["1", "2", "3"], case_id=["1", "2", "3"]), ["case_id"])
    assert (read["age"].dtype.kind, read["n"].dtype.kind) == ("f", "i")
    assert list(read["code"]) == ["007", "8", "9"]
    assert list(read["case_id"]) == ["1", "2", "3"]
    assert list(read["grade"].isna()) == [False, True, False]


@pytest.mark.parametrize("slide", ["slide_id", "FILENAME", "slide", "wsi", "image_id"])
@pytest.mark.parametrize("patient", ["case_id", "PATIENT", "patient_id", "patient"])
def test_columns_are_found_by_the_field_s_aliases(tmp_path, slide, patient):
    read = read_clinical(table(tmp_path / "t.csv", f"{patient},x,{slide}\n01,a,001\n02,b,002\n"))
    assert read.who.slide == ["001", "002"]
    assert read.who.patient == ["01", "02"]


@pytest.mark.parametrize("slide", ["slide_ID", "Slide_Id", "filename", "WSI"])
def test_columns_are_found_in_upper_and_lower_case(folder, slide):
    path = table(folder / "t.csv", f"{slide},Case_ID,Center\n01,007,x\n02,008,y\n")
    who = read_clinical(path).who
    assert (who.slide, who.patient, who.site) == (["01", "02"], ["007", "008"], ["x", "y"])
    assert list(select_slides(folder, path).clinical[slide]) == ["01", "02"]  # a name, not a number


def test_a_missing_slide_column_is_noted_in_the_error(folder):
    for rows in ("x1,p,A\nx2,q,B\n", "x1,p,A\nx2,p,B\n"):  # no feature files; rows that differ
        with pytest.raises(InputError, match=r"no slide column.*\(case_id\)"):
            select_slides(folder, table(folder / "t.csv", f"sldie_id,case_id,site_id\n{rows}"))


def test_named_columns_go_before_the_usual_ones_and_these_before_other_cases(tmp_path):
    path = table(tmp_path / "t.csv", "slide_id,file,who,lab\nx,a.svs,p,L\ny,b.svs,q,M\n")
    who = read_clinical(path, columns=Columns("file", "who", "lab")).who
    assert (who.slide, who.patient, who.site) == (["a", "b"], ["p", "q"], ["L", "M"])
    with pytest.raises(InputError, match="'labs'"):
        read_clinical(path, columns=Columns(site="labs"))
    assert read_clinical(table(tmp_path / "t.csv", "SLIDE_ID,slide_id\na,b\n")).who.slide == ["b"]
    with pytest.raises(InputError, match="'SLIDE_ID', 'Slide_ID'"):
        read_clinical(table(tmp_path / "u.csv", "SLIDE_ID,Slide_ID\na,b\n"))


def test_names_of_slide_files_lose_their_ending_and_nothing_else(tmp_path):
    read = read_clinical(table(tmp_path / "t.csv", "slide_id\na.svs\nTCGA-AS.3c2ee\nb.NDPI\nc.tar\n"))
    assert read.who.slide == ["a", "TCGA-AS.3c2ee", "b", "c.tar"]


def test_the_patient_is_inferred_from_tcga_barcodes_only_where_all_slides_have_one(tmp_path):
    barcodes = "slide_id\nTCGA-AS-3777-01Z-00-DX1.3c2e\nTCGA-AS-3777-01Z-00-DX2\nTCGA-B0-5691-01Z\n"
    read = read_clinical(table(tmp_path / "t.csv", barcodes))
    assert list(read.with_ids()["case_id"]) == ["TCGA-AS-3777", "TCGA-AS-3777", "TCGA-B0-5691"]
    unknown = read_clinical(table(tmp_path / "u.csv", barcodes + "other\n"))
    assert not unknown.who.patients_known
    assert "case_id" not in unknown.with_ids().columns


@pytest.mark.parametrize(
    ("text", "culprit"),
    [
        ("name,age\na,1\n", "name, age"),
        ("slide_id,age\na,1\na,2\nb,3\n", "e.g. a"),
        ("slide_id,age\na,1\na,1\n,2\n", "line 4"),
        *((text, "") for text in ("slide_id,age\n", "", "slide_id\n\xff\n")),
    ],
)
@pytest.mark.parametrize("name", ["t.csv", "t.xlsx"])
def test_an_unusable_table_is_refused_by_name(tmp_path, text, culprit, name):
    path = tmp_path / name
    path.write_bytes(text.encode("latin-1") if name == "t.csv" else b"PK\x03\x04\xab\xff")
    with pytest.raises(InputError, match=rf"{path}.*{culprit if name == 't.csv' else ''}"):
        read_clinical(path)


@pytest.fixture
def folder(tmp_path):
    for index, slide in enumerate(("01", "02", "03", "04")):
        write(tmp_path, "npy", *features(5 + index, seed=index), name=slide)
    return tmp_path


def test_a_table_selects_slides_and_missing_and_further_ones_are_reported(folder):
    path = table(folder / "t.csv", "slide_id,case_id\n03,p\n01,q\n99,q\n")
    chosen = select_slides(folder, path)
    assert [ref.sample for ref in chosen.refs] == ["01", "03"]
    assert list(chosen.problems) == ["99"]
    assert str(path) in chosen.problems["99"]
    assert any(note.startswith("2 slides") for note in chosen.notes)
    with pytest.raises(InputError, match=r"u\.csv"):
        select_slides(folder, table(folder / "u.csv", "slide_id\nother\n"))


def test_the_slides_of_a_patient_are_one_bag_and_one_clinical_row(folder):
    path = table(folder / "t.csv", "slide_id,case_id,age,stain\n01,7,60,a\n02,7,60,b\n03,08,50,a\n99,08,50,a\n")
    chosen = select_slides(folder, path, level="patient")
    assert [ref.sample for ref in chosen.refs] == ["08", "7"]
    bag = {ref.sample: ref for ref in chosen.refs}["7"].open()
    expected = np.concatenate([np.load(folder / "01.npy"), np.load(folder / "02.npy")])
    np.testing.assert_array_equal(bag.features[0:99].numpy(), expected)
    np.testing.assert_array_equal(bag.features[3:8].numpy(), expected[3:8])
    assert dict(chosen.clinical["age"]) == {"7": 60, "08": 50}
    assert dict(chosen.clinical["n_slides"]) == {"7": 2, "08": 1}  # those with features
    assert "stain" not in chosen.clinical  # the slides of a patient disagree
    with pytest.raises(InputError, match=r"u\.csv"):
        select_slides(folder, table(folder / "u.csv", "slide_id\n01\n"), level="patient")


@pytest.mark.parametrize("level", ["slide", "patient"])
def test_na_may_be_the_name_of_a_patient(folder, level):
    path = table(folder / "t.csv", "slide_id,case_id,age,lab\n01,NA,NA,NA\n02,null,50,7\n03,NaN,60,8\n")
    chosen = select_slides(folder, path, level=level, columns=Columns(site="lab"))
    assert sorted(chosen.clinical["case_id"] if level == "slide" else chosen.clinical.index) == ["NA", "NaN", "null"]
    assert {ref.sample for ref in chosen.refs} == ({"NA", "NaN", "null"} if level == "patient" else {"01", "02", "03"})
    assert sorted(chosen.clinical["age"].dropna()) == [50, 60]
    assert sorted(chosen.clinical["lab"].dropna()) == ["7", "8"]  # a name of a site, or nothing


def test_hidden_files_and_files_that_are_no_bags_are_not_listed(folder):
    (folder / ".hidden").mkdir()
    write(folder / ".hidden", "npy", *features(), name="01")
    (folder / ".02.npy.host.1.part").touch()
    (folder / "notes.txt").touch()
    listing = list_bags(folder)
    assert (len(listing.refs), listing.ignored, listing.problems) == (4, 1, {})
    with pytest.raises(InputError, match="missing"):
        list_bags(folder / "missing")


def test_tables_for_people_hold_no_formula_and_leave_ids_and_numbers_alone(tmp_path):
    from panther.storage.tables import write_spreadsheet

    rows = [("=1+1", "=cmd|' /C calc'!A0", -2.5, "-2.5"), ("-7", "+a", "@b", "plain")]
    write_spreadsheet(tmp_path / "t.csv", ("sample", "=name", "value", "text"), rows)
    with (tmp_path / "t.csv").open(newline="") as handle:
        actual = list(csv.reader(handle))
    assert actual == [
        ["sample", "'=name", "value", "text"],
        ["=1+1", "'=cmd|' /C calc'!A0", "-2.5", "-2.5"],
        ["-7", "'+a", "'@b", "plain"],
    ]

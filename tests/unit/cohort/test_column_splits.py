"""A column of the table as splits: folds that are each tested once, or one split in words; never a patient in two parts."""

import pandas as pd
import pytest

from panther.cohort.load import load_cohort
from panther.cohort.splits import column_splits
from panther.errors import InputError
from panther.study.file import Study
from panther.study.population import gather
from study.generated import generate


@pytest.fixture
def table(tmp_path):
    generate(tmp_path, patients=24)
    rows = pd.read_csv(tmp_path / "table.csv", dtype=str)
    number = rows["case_id"].str[1:].astype(int)
    rows["fold"] = (number % 3).map({0: "10", 1: "2", 2: "1"})
    rows["split"] = (number % 4).map({0: "test", 1: "Validation", 2: "train", 3: "train"})
    return rows


def splits_of(table, column, level="patient", **more):
    return column_splits(load_cohort(table, label="subtype", level=level), column, **more)


def test_every_fold_is_tested_once_in_its_natural_order(table):
    splits, notes = splits_of(table, "fold")
    fold = table.groupby("case_id")["fold"].first()
    assert [{fold[name] for name in split.test["test"]} for split in splits] == [{"1"}, {"2"}, {"10"}]
    assert all(set(split.train) == set(fold.index) - set(split.test["test"]) for split in splits)
    assert not notes
    table.loc[table["case_id"] == "P005", "fold"] = "NA"
    splits, notes = splits_of(table, "fold")
    assert all("P005" not in ids for split in splits for ids in split.parts().values())
    assert any("1 samples have no fold" in note for note in notes)


def test_a_column_of_train_and_test_is_one_split(table):
    ((split,), _) = splits_of(table, "split")
    part = table.groupby("case_id")["split"].first()
    assert set(split.test["test"]) == set(part.index[part == "test"])
    assert set(split.val) == set(part.index[part == "Validation"])
    assert set(split.train) == set(part.index[part == "train"])
    with pytest.raises(InputError, match="leave out `val`"):
        splits_of(table, "split", val=True)


@pytest.mark.parametrize("level", ["patient", "slide"])
def test_a_patient_with_slides_in_two_folds_is_refused(table, level):
    torn = table["slide_id"] == "P000-1"
    table.loc[torn, "fold"] = "1" if table.loc[torn, "fold"].item() != "1" else "2"
    with pytest.raises(InputError, match="P000"):
        splits_of(table, "fold", level)


@pytest.mark.parametrize(
    ("column", "words"), [("fld", "did you mean 'fold'"), ("case_id", "folds"), ("one", "one says 1")]
)
def test_a_column_that_is_no_split_is_refused(table, column, words):
    table["one"] = "1"
    with pytest.raises(InputError, match=words):
        splits_of(table, column)


def test_a_study_takes_its_folds_from_the_column(table, tmp_path):
    table.to_csv(tmp_path / "table.csv", index=False)
    study = Study(
        name="by column",
        table=tmp_path / "table.csv",
        features={"npy": tmp_path / "features"},
        task={"label": "subtype"},
        splits={"column": "fold"},
    )
    assert list(gather(study).splits) == splits_of(table, "fold")[0]
    assert Study.model_validate_json(study.model_dump_json()) == study  # as the folder of a run keeps it

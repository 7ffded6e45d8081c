"""Parts of a split, by a column or as a folder of tables: what is read, what the others hold, who is in two."""

import pytest
from layouts import features, write

from panther import choose_c, fit_prototypes
from panther.errors import InputError
from panther.storage.clinical import Columns, read_clinical, select_slides
from panther.storage.tables import as_table, read_parts


def table(path, text):
    path.write_text(text)
    return path


@pytest.fixture
def bags(tmp_path):
    """Slides a to e."""
    folder = tmp_path / "features"
    folder.mkdir()
    for index, slide in enumerate("abcde"):
        write(folder, "npy", *features(20, seed=index), name=slide)
    return folder


def test_a_split_folder_gives_its_parts(shared_data):
    folder = shared_data / "tables" / "survival" / "TCGA_KIRC_overall_survival_k=0"
    for split in ("train", "test", "test_cptac"):
        read = read_parts(folder, split)
        assert read.chosen.equals(as_table(folder / f"{split}.csv"))
        assert {split, *read.others} == {"train", "test", "test_cptac"}
    with pytest.raises(InputError, match=r"val\.csv"):
        read_parts(folder, "val")
    with pytest.raises(InputError, match="k=0"):
        read_parts(folder)


def test_a_column_says_which_rows_are_a_split(tmp_path):
    path = table(tmp_path / "t.csv", "slide_id,split\na,train\nb,test\nc,train\n")
    assert read_clinical(path, "train").who.slide == ["a", "c"]
    with pytest.raises(InputError, match="test, train"):
        read_parts(path, "val")
    with pytest.raises(InputError, match=r"u\.csv"):
        read_parts(table(tmp_path / "u.csv", "slide_id\na\n"), "train")


def test_rows_of_one_part_do_not_disagree_about_a_slide(tmp_path):
    path = table(tmp_path / "t.csv", "slide_id,split,x\na,train,1\na,test,1\nb,test,1\nb,test,1\nc,val,1\nc,val,2\n")
    assert read_clinical(path, "train").who.slide == ["a"]
    test = read_clinical(path, "test")
    assert (test.who.slide, test.duplicates) == (["a", "b"], 1)
    with pytest.raises(InputError, match="c"):
        read_clinical(path, "val")


def test_notes_distinguish_slides_of_other_parts_from_slides_without_a_row(bags, tmp_path):
    path = table(tmp_path / "t.csv", "slide_id,split\na,train\nb,test\nc,\nd,val\n")
    chosen = select_slides(bags, path, "train")
    assert [ref.sample for ref in chosen.refs] == ["a"]
    assert [note.split()[0] for note in chosen.notes] == ["3", "1"]  # of other parts, of no row
    fold = tmp_path / "kirc_k=0"
    fold.mkdir()
    table(fold / "train.csv", "scan,case_id,x\na,p,1\nb,q,1\n")
    table(fold / "test.csv", "slide_id\nc\nd\n")  # a mere list
    chosen = select_slides(bags, fold, "train", columns=Columns(slide="scan"))
    assert [note.split()[0] for note in chosen.notes] == ["2", "1"]


def test_a_folder_of_folds_is_answered_with_their_names(tmp_path):
    for number in (0, 1):
        (tmp_path / f"kirc_k={number}").mkdir()
        table(tmp_path / f"kirc_k={number}" / "train.csv", "slide_id\na\n")
    with pytest.raises(InputError, match="kirc_k=0"):
        read_parts(tmp_path, "train")


LEAK = "slide_id,case_id,split\na,p,train\nb,q,train\nc,p,test\nd,r,test\ne,q,\n"


@pytest.mark.parametrize("learn", [fit_prototypes, choose_c])
def test_nothing_is_learned_from_a_split_that_shares_a_patient(bags, tmp_path, learn):
    path = table(tmp_path / "t.csv", LEAK)
    with pytest.raises(InputError, match=r"t\.csv: .* p in train and test"):
        learn(bags, table=path, split="train")
    assert [ref.sample for ref in select_slides(bags, path, "test").refs] == ["c", "d"]  # looking is no learning


def test_a_patient_of_a_row_without_a_part_is_not_shared(tmp_path):
    read_clinical(table(tmp_path / "t.csv", LEAK.replace("c,p", "c,s")), "train").refuse_shared_patients()

"""Names of slides that look the same are the same: macOS writes letters with marks in two characters, tables in one."""

import unicodedata

import numpy as np
import pandas as pd
import pytest
from layouts import features, write

from panther.cohort.load import load_cohort
from panther.errors import InputError
from panther.storage.bags import as_bags, list_bags
from panther.storage.clinical import read_clinical, select_slides
from panther.storage.readers import open_bag
from panther.storage.slide_vectors import vector_bags
from panther.types import Bag

COMPOSED, DECOMPOSED = (unicodedata.normalize(form, "Größe é") for form in ("NFC", "NFD"))
FORMS = pytest.mark.parametrize("form", ["NFC", "NFD"])


def spelt(form, *names):
    return [unicodedata.normalize(form, name) for name in names]


@FORMS
@pytest.mark.parametrize("other", ["NFC", "NFD"])
def test_files_and_tables_match_however_their_letters_are_composed(tmp_path, form, other):
    for number, name in enumerate(spelt(form, "ä1", "ä2")):
        write(tmp_path, "npy", *features(5, seed=number), name=name)
    table = pd.DataFrame(
        {"slide_id": spelt(other, "ä1.svs", "ä2.svs"), "case_id": spelt(other, "ö", "ü"), "label": ["a", "b"]}
    )
    chosen = select_slides(tmp_path, table)
    assert [ref.sample for ref in chosen.refs] == list(chosen.clinical.index) == spelt("NFC", "ä1", "ä2")
    cohort = load_cohort(table, label="label", bags=tmp_path)
    assert [ref.sample for ref in cohort.bags] == list(cohort.ids) == spelt("NFC", "ö", "ü")


@FORMS
def test_bags_are_called_by_composed_names_wherever_they_come_from(tmp_path, form):
    (name,) = spelt(form, COMPOSED)
    write(tmp_path, "npy", *features(5), name=name)
    array = np.zeros((5, 4), np.float32)
    for arguments in (
        tmp_path,
        [tmp_path / f"{name}.npy"],
        {name: array},
        {name: tmp_path},
        [Bag(name, open_bag(tmp_path / f"{name}.npy").features)],
    ):
        assert [ref.sample for ref in as_bags(arguments).refs] == [COMPOSED]
    assert open_bag(tmp_path / f"{name}.npy").slide_id == COMPOSED
    np.savez(tmp_path / "v.npz", samples=np.array([name]), X=array[:1])
    assert [ref.sample for ref in vector_bags(tmp_path / "v.npz").refs] == [COMPOSED]


def test_two_files_or_rows_that_only_look_the_same_are_one_slide_there_twice(tmp_path):
    table = pd.DataFrame({"slide_id": [COMPOSED, DECOMPOSED], "label": ["a", "b"]})
    with pytest.raises(InputError, match=COMPOSED):
        read_clinical(table)
    with pytest.raises(InputError, match=COMPOSED):
        as_bags({COMPOSED: np.zeros((5, 4)), DECOMPOSED: np.zeros((5, 4))})
    for number, name in enumerate((COMPOSED, DECOMPOSED, "other")):
        write(tmp_path, "npy", *features(5, seed=number), name=name)
    if len(list(tmp_path.iterdir())) < 3:
        pytest.skip("this file system takes both names for one")
    listing = list_bags(tmp_path)
    assert [ref.sample for ref in listing.refs] == ["other"]
    assert list(listing.problems) == [COMPOSED]

"""Tables, features and splits of a study are joined by the columns that its file names."""

import pandas as pd
import pytest

from panther.errors import InputError
from panther.study.evaluations import subgroups
from panther.study.file import Study
from panther.study.population import gather
from panther.verbs.study import run_study
from study.generated import generate, study_in

OTHER_NAMES = {"slide_id": "file", "case_id": "who", "tissue_source_site": "lab"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    generate(folder, patients=12, patches=4)
    pd.read_csv(folder / "table.csv", dtype=str).rename(columns=OTHER_NAMES).to_csv(folder / "other.csv", index=False)
    return folder


def test_named_columns_give_the_same_population_as_the_usual_ones(folder):
    columns = {"slide": "file", "patient": "who", "site": "lab"}
    usual = gather(study_in(folder, splits={"scheme": "site-kfold", "k": 2}))
    named = gather(study_in(folder, table="other.csv", columns=columns, splits={"scheme": "site-kfold", "k": 2}))
    assert (named.ids, named.patients, named.sites) == (usual.ids, usual.patients, usual.sites)
    assert named.splits == usual.splits
    assert set(usual.sites) == {f"S{n}" for n in range(6)}
    table = pd.read_csv(folder / "other.csv", dtype=str)
    table.assign(who="X" + table["who"]).to_csv(folder / "external.csv", index=False)
    external = {
        "table": "external.csv",
        "features": {"npy": "features"},
        "columns": {"slide": "file", "patient": "who"},
    }
    assert gather(study_in(folder, external={"lab": external})).patients[-1] == "XP011"


def test_unknown_columns_and_keys_are_refused_by_name(folder):
    with pytest.raises(InputError, match="no slide column 'files'; did you mean 'file'"):
        gather(study_in(folder, table="other.csv", columns={"slide": "files"}))
    with pytest.raises(InputError, match=r"columns\.slides: there is no such key; did you mean 'slide'"):
        study_in(folder, table="other.csv", columns={"slides": "file"})


def test_thirds_of_a_number_are_those_of_the_study_with_external_cohorts_too(folder):
    rows = pd.read_csv(folder / "table.csv", dtype=str)
    age = rows["case_id"].str[1:].astype(int) + 40  # 40 ... 51
    rows.assign(age=age).to_csv(folder / "aged.csv", index=False)
    older = rows.assign(age=(age + 30).astype(str).mask(age == 40, "old"), case_id="X" + rows["case_id"])
    older.to_csv(folder / "older.csv", index=False)
    external = {"lab": {"table": "older.csv", "features": {"npy": "features"}}}
    alone = study_in(folder, table="aged.csv", evaluate_by="age")
    both = study_in(folder, table="aged.csv", evaluate_by="age", external=external)
    before, after = (subgroups(study, gather(study))["age"] for study in (alone, both))
    pd.testing.assert_series_equal(after.loc[before.index], before)
    assert before.nunique() == 3
    theirs = after.drop(before.index)
    assert set(theirs) == {"", before["P011"]}  # all but one are older than the oldest third begins
    assert theirs["XP000"] == ""  # not a number


@pytest.mark.parametrize("task", ["subtype", "nosuch"])
def test_a_refused_study_trains_nothing_and_leaves_no_folder(tmp_path, task):
    generate(tmp_path, patients=8)
    table = pd.read_csv(tmp_path / "table.csv")
    for part, rows in {"train": table[:6], "val": table[6:]}.items():
        (tmp_path / "s_k=0").mkdir(exist_ok=True)
        rows.to_csv(tmp_path / "s_k=0" / f"{part}.csv", index=False)
    study = {"name": "x", "table": table, "features": tmp_path / "features", "task": {"label": task}}
    with pytest.raises(InputError, match="no test part" if task == "subtype" else task):
        run_study({**study, "splits": tmp_path / "s_k=0"}, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_grid_of_too_many_models_is_refused_unless_allowed(folder):
    grid = {"seeds": list(range(8)), "n_prototypes": [1, 2, 3]}  # in 2 folds
    with pytest.raises(InputError, match="47"):
        gather(study_in(folder, **grid, max_models=47))
    assert gather(study_in(folder, **grid, max_models=48))
    assert Study(name="s", features={"f": "f"}, table="t.csv", task={"label": "a"}).max_models < 100_000

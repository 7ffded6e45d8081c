"""Split folders of three formats are read, written and checked for leakage."""

import csv
import json
from pathlib import Path

import pytest

import commands
from panther import make_splits
from panther.cohort.load import Cohort, load_cohort
from panther.cohort.split_files import assign, read_splits, write_splits
from panther.errors import InputError
from panther.storage.clinical import Columns

ROWS = [f'0{i},p{i // 2},{"ab"[i // 2 % 2]},"x, {i}",0{i}.50' for i in range(16)]
HEADER = "slide_id,case_id,label,comment,number"


@pytest.fixture
def table(tmp_path) -> Path:
    path = tmp_path / "t.csv"
    path.write_text("\n".join([HEADER, *ROWS]) + "\n")
    return path


@pytest.fixture
def cohort(table) -> Cohort:
    return load_cohort(table, label="label")


def fold(folder: Path, **parts: list[int]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for part, rows in parts.items():
        (folder / f"{part}.csv").write_text("\n".join([HEADER, *(ROWS[i] for i in rows)]) + "\n")
    return folder


def test_written_splits_are_read_again_with_the_rows_of_the_table(cohort, table, tmp_path):
    made = make_splits(cohort, "kfold", k=3, val=True)
    write_splits(tmp_path / "out", "study", cohort, made, {"seed": 0})
    assert assign(read_splits(tmp_path / "out"), cohort)[0] == made
    assert assign(read_splits(tmp_path / "out" / "study"), cohort)[0] == made  # the common beginning of the names
    for i in range(3):
        folder = tmp_path / "out" / f"study_k={i}"
        written = [
            line for part in ("train", "val", "test") for line in (folder / f"{part}.csv").read_text().splitlines()[1:]
        ]
        assert sorted(written) == sorted(table.read_text().splitlines()[1:])
    assert json.loads((tmp_path / "out" / "study.json").read_text()) == {"seed": 0}


def test_fewer_folds_do_not_mix_with_those_of_an_earlier_run(cohort, tmp_path):
    write_splits(tmp_path, "s", cohort, make_splits(cohort, "kfold", k=4), {})
    write_splits(tmp_path, "s", cohort, make_splits(cohort, "kfold", k=4, seed=1), {})
    with pytest.raises(InputError, match=r"s_k=3.*earlier split"):
        write_splits(tmp_path, "s", cohort, make_splits(cohort, "kfold", k=3), {})
    with pytest.raises(InputError, match="name of split folders"):
        write_splits(tmp_path, "../s", cohort, [], {})


@pytest.mark.parametrize("key", ["scheme", "settings", "cohort"])
def test_a_split_with_other_settings_is_not_replaced(cohort, tmp_path, key):
    made, about = make_splits(cohort, "kfold", k=3), {"scheme": "kfold", "settings": {"seed": 0}, "cohort": "1f"}
    write_splits(tmp_path, "s", cohort, made, about)
    before = (tmp_path / "s.json").read_text()
    write_splits(tmp_path, "s", cohort, made, about)
    with pytest.raises(InputError, match=key):
        write_splits(tmp_path, "s", cohort, made, about | {key: {"seed": 1}})
    assert (tmp_path / "s.json").read_text() == before


def test_named_columns_serve_in_split_files_too(tmp_path):
    (tmp_path / "t.csv").write_text("scan,who,label\n1,p,a\n2,p,a\n3,q,b\n4,r,a\n5,s,b\n")
    (tmp_path / "s_k=0").mkdir()
    (tmp_path / "s_k=0" / "train.csv").write_text("scan,who\n1,p\n2,p\n3,q\n")
    (tmp_path / "s_k=0" / "test.csv").write_text("scan,who\n4,r\n5,s\n")
    names = Columns("scan", "who")
    cohort = load_cohort(tmp_path / "t.csv", columns=names)
    (split,), _ = assign(read_splits(tmp_path / "s"), cohort, names)
    assert (split.train, split.test["test"]) == (("p", "q"), ("r", "s"))


def test_clam_lists_are_read_beside_their_other_files(cohort, tmp_path):
    folder = tmp_path / "clam"
    folder.mkdir()
    (folder / "splits_0.csv").write_text(",train,val,test\n0,00,04,06\n1,01,05,07\n2,02,,\n3,03,,\n")
    (folder / "splits_0_bool.csv").write_text(",train,val,test\n00,True,False,False\n")
    (splits, report) = assign(read_splits(folder), cohort)
    assert (splits[0].train, splits[0].val, dict(splits[0].test)) == (("p0", "p1"), ("p2",), {"test": ("p3",)})
    assert report.notes[-1].startswith("4 samples of the table are in no part")


def test_patho_bench_columns_are_folds(cohort, tmp_path):
    lines = [
        f"p{i}\t{'ab'[i % 2]}\t{'test' if i < 2 else 'train'}\t{'test' if i in (2, 3) else 'train'}" for i in range(8)
    ]
    (tmp_path / "k=all.tsv").write_text("\n".join(["case_id\tlabel\tfold_0\tfold_1", *lines]) + "\n")
    for path in (tmp_path, tmp_path / "k=all.tsv"):
        splits, _ = assign(read_splits(path), cohort)
        assert [split.test["test"] for split in splits] == [("p0", "p1"), ("p2", "p3")]
        assert len(splits[0].train) == 6


def test_an_external_cohort_is_tested_with_every_fold(cohort, tmp_path):
    fold(tmp_path / "s_k=0", train=[0, 1, 2, 3], test=[4, 5, 6, 7], test_other=[8, 9, 10, 11])
    fold(tmp_path / "s_k=1", train=[4, 5, 6, 7], test=[0, 1, 2, 3])
    splits, report = assign(read_splits(tmp_path / "s"), cohort)
    assert [split.test["test_other"] for split in splits] == [("p4", "p5")] * 2
    assert "test_other is given with k=0" in report.notes[0]


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"train": [0, 2, 4], "test": [1, 6]}, "patients in two parts: 1, e.g. p0 in "),
        ({"train": [0, 1, 4], "test": [2, 3]}, "no training sample is of class b"),
        ({"test": [2, 3]}, "no train.csv beside test.csv"),
    ],
)
def test_a_leaking_or_useless_fold_is_refused(cohort, tmp_path, parts, message):
    with pytest.raises(InputError, match=message):
        assign(read_splits(fold(tmp_path / "s_k=0", **parts)), cohort)


def test_folders_that_are_no_splits_are_refused_by_name(tmp_path):
    for path, message in ((tmp_path, "no splits"), (tmp_path / "x" / "y", "no such folder")):
        with pytest.raises(InputError, match=message):
            read_splits(path)
    fold(tmp_path / "a_k=0", train=[0]), fold(tmp_path / "b_k=0", train=[0])
    with pytest.raises(InputError, match="several splits, a, b"):
        read_splits(tmp_path)
    fold(tmp_path / "a_k=2", train=[0])
    with pytest.raises(InputError, match="fold k=1 is missing"):
        read_splits(tmp_path / "a")
    (tmp_path / "c.tsv").write_text("case_id\tfold_0\np\tmaybe\n")
    with pytest.raises(InputError, match="fold_0 says maybe"):
        read_splits(tmp_path / "c.tsv")


def test_the_real_kirc_folds_are_disjoint_in_patients_and_sites(shared_data):
    files = read_splits(shared_data / "tables" / "survival")
    cohort = load_cohort(files.table(), survival="dss")
    splits, report = assign(files, cohort)
    assert cohort.report.dropped["no dss_censorship or dss_survival_days"] == 9
    assert [len(split.test["test"]) for split in splits] == [57, 78, 139, 95, 133]
    assert {len(split.test["test_cptac"]) for split in splits} == {179}
    assert all(split.val == () for split in splits)
    assert set(map(tuple, report.shared_sites.values())) == {()}


def run(*arguments: object) -> str:
    return commands.run("splits", *arguments).stdout


def test_the_command_makes_splits_and_checks_them(table, tmp_path):
    out = tmp_path / "out"
    made = json.loads(run(table, "--scheme", "kfold", "-k", 4, "-o", out, "--name", "n", "--json"))
    assert [fold["test"]["samples"] for fold in made["folds"]] == [2, 2, 2, 2]
    assert all(Path(file).is_file() for file in made["files"])
    first = (out / "n_k=0" / "test.csv").read_bytes()
    message = run(out, "--label", "label")
    assert "No patient is in two parts of a fold." in message
    assert f"Imbalance {made['balance']['imbalance']:.4f}" in message
    run(table, "--scheme", "kfold", "-k", 4, "-o", out, "--name", "n")
    assert (out / "n_k=0" / "test.csv").read_bytes() == first
    with (out / "n_k=0" / "test.csv").open() as handle:
        rows = list(csv.DictReader(handle))
    assert [row["number"] for row in rows] == [f"{row['slide_id']}.50" for row in rows]  # 00.50 is not 0.5


@pytest.mark.parametrize(
    ("arguments", "culprit"),
    [
        (("--scheme", "holdout", "--shares", "80:20"), "80:20"),
        (("--scheme", "kfold", "--label", "x", "--survival", "os"), "one of label, survival"),
        (("--scheme", "kfold", "--check", "splits"), "check"),
        (("--scheme", "random"), "scheme"),
        (("-k", 1), "k"),
    ],
)
def test_the_command_refuses_invalid_requests(table, arguments, culprit):
    with pytest.raises(InputError, match=culprit):
        run(table, *arguments)


def test_a_run_that_stops_half_way_leaves_no_summary(cohort, tmp_path):
    made = make_splits(cohort, "kfold", k=3)
    write_splits(tmp_path, "s", cohort, made, {"seed": 0})
    (tmp_path / "s_k=2" / "train.csv").unlink()
    (tmp_path / "s_k=2" / "train.csv").mkdir()  # cannot be replaced by a file
    with pytest.raises(InputError, match=r"train\.csv"):
        write_splits(tmp_path, "s", cohort, made, {"seed": 0})
    assert not (tmp_path / "s.json").exists()

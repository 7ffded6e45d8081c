"""`panther view` with options that make no sense."""

from pathlib import Path

import pytest

from cli.running import Runner


@pytest.fixture
def command(monkeypatch, capsys):
    return Runner(monkeypatch, capsys)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["nowhere"], "nowhere: no such file or folder"),
        (["empty"], "neither slides nor features"),
        (["cohort", "-p", "none.safetensors"], "none.safetensors"),
        (["cohort", "-p", "cohort/cohort.csv"], "not a prototype file"),
        (["cohort", "--model", "cohort/prototypes.safetensors"], "not of a model"),
        (["cohort", "--features", "none"], "none: there is no such file or folder"),
        (["cohort", "--slides", "none"], "none: no such file or folder"),
        (["cohort", "--slides", "empty"], "no slides found"),
        (["cohort", "--study", "cohort"], "not the folder of a run"),
        (["cohort", "--table", "none.csv"], "there is no such table"),
        (["cohort", "--table", "cohort/cohort.csv", "--slide-column", "no"], "no slide column 'no'"),
        (["cohort", "--embeddings", "cohort/cohort.csv"], "no embeddings"),
        (["cohort", "--embeddings", "none.h5ad"], "none.h5ad"),
        (["cohort", "--names", "none/names.yaml"], "there is no folder none"),
        (["cohort", "--allow-folder", "none"], "none: no such file or folder"),
        (["cohort", "--prefix", "a b"], "'a b'"),
        (["cohort", "--host", "http://x"], "http://x"),
        (["cohort", "--allow-host", "a/b"], "a/b"),
        (["cohort", "--slide-mpp-table", "none.csv"], "none.csv"),
    ],
)
def test_a_wrong_option_is_one_line_and_exit_code_2(command, cohort_folder, monkeypatch, options, said):
    monkeypatch.chdir(cohort_folder.parent)
    Path("empty").mkdir()
    out, err = command("view", *options, "--no-browser", "-j", 1, code=2)
    assert out == "" or out.startswith("http")  # the page is there before the folder is read
    assert said in err
    assert len([line for line in err.splitlines() if "at work" not in line]) == 1

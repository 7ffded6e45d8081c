"""A file that panther did not write is kept, unless the command is told to overwrite it."""

import anndata
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from cli.running import embed, make_cohort
from commands import invoke, run

EMBED = embed()
PROTOTYPES = ("prototypes", "feats", "-C", 2, "-j", 1)


def write_anndata(path):
    anndata.AnnData(np.ones((3, 2), np.float32)).write_h5ad(path)


OTHERS = {
    "a text": (EMBED, "s.h5ad", lambda path: path.write_text("notes")),
    "another program's AnnData": (EMBED, "s.h5ad", write_anndata),
    "another program's arrays": (embed("-o", "s.npz"), "s.npz", lambda path: np.savez(path, X=np.ones(3))),
    "another program's weights": (
        (*PROTOTYPES, "-o", "p.safetensors"),
        "p.safetensors",
        lambda path: save_file({"w": torch.ones(2)}, path),
    ),
    "a clinical table": (
        ("choose-c", "feats", "--range", "2:3", "-o", "t.csv", "-j", 1),
        "t.csv",
        lambda path: path.write_text("slide_id,case_id\n1,2\n"),
    ),
}


@pytest.fixture
def cohort(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return make_cohort(tmp_path)


@pytest.mark.filterwarnings("ignore:The iteration is not making good progress")
@pytest.mark.parametrize("what", OTHERS)
def test_a_file_of_another_program_is_kept_without_overwrite(cohort, what):
    arguments, name, write = OTHERS[what]
    write(cohort / name)
    content = (cohort / name).read_bytes()
    ended = invoke(*arguments)
    assert ended.exit_code == 2
    assert ended.stderr.startswith(f"panther: {name}: ")
    assert ended.stderr.count("\n") == 1
    assert (cohort / name).read_bytes() == content
    run(*arguments, "--overwrite")
    assert (cohort / name).read_bytes() != content
    run(*arguments)  # a result of ours is written again without a word


def test_the_python_function_overwrites(cohort):
    import panther

    (cohort / "s.h5ad").write_text("notes")
    panther.embed_cohort("feats", "p.npy", output="s.h5ad")
    assert (cohort / "s.h5ad").stat().st_size > 1000

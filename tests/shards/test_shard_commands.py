"""Commands in shards write what they write alone, byte for byte."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cli.running import Runner
from panther.cli import _common


@pytest.fixture
def panther(monkeypatch, capsys):
    return Runner(monkeypatch, capsys)


@pytest.fixture
def cohort(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    (tmp_path / "features").mkdir()
    for i in range(12):
        x = rng.normal((i % 2) * 3 * np.arange(4), 1, (40 + i, 4)).astype(np.float32)
        np.save(tmp_path / "features" / f"S{i}.npy", x)
    table = pd.DataFrame({"slide_id": [f"S{i}" for i in range(12)], "subtype": ["a", "b"] * 6})
    table.assign(case_id=table["slide_id"]).to_csv(tmp_path / "cohort.csv", index=False)
    return tmp_path


def test_prototypes_and_embeddings(cohort, monkeypatch, panther):
    monkeypatch.chdir(cohort)
    for output, shards in (("one", [()]), ("three", [("--shard", f"{i}/3") for i in (2, 0, 1)])):
        for shard in shards:
            panther("prototypes", "features", "-C", 3, "-o", f"{output}.safetensors", *shard)
        for shard in shards:
            words = ("embed", "features", "-p", "one.safetensors", "-o", f"{output}.h5ad")
            panther(*words, *shard)
    for name in ("safetensors", "h5ad"):
        assert Path(f"one.{name}").read_bytes() == Path(f"three.{name}").read_bytes()
    assert not list(cohort.glob("*.shards"))
    panther("merge", "three.h5ad")  # whole already


def test_choose_c_and_its_merge(cohort, monkeypatch, panther):
    monkeypatch.chdir(cohort)
    words = ("choose-c", "features", "--range", "2:5", "--sample", 400, "-o")
    alone = panther(*words, "one.csv")[0]
    assert panther(*words, "two.csv", "--shard", "1/2")[0] == alone
    Path("two.csv").unlink()  # as if it had been killed before it wrote
    assert panther("merge", "two.csv")[0] == alone
    assert Path("two.csv").read_bytes() == Path("one.csv").read_bytes()
    assert not list(cohort.glob("*.shards"))
    table = pd.read_csv("one.csv")
    assert table["recommended"].sum() == 1
    assert f"->{table.loc[table['recommended'], 'n_prototypes'].item():>3}" in alone
    assert "say where the table goes with -o" in panther(*words[:-1], "--shard", "0/2", code=2)[1]


def test_merge_writes_from_the_parts_and_refuses_where_some_are_missing(cohort, monkeypatch, panther):
    monkeypatch.chdir(cohort)
    panther("prototypes", "features", "-C", 3, "-o", "p.safetensors")
    panther("embed", "features", "-p", "p.safetensors", "-o", "one.h5ad")
    words = ("embed", "features", "-p", "p.safetensors", "-o", "out.h5ad")
    panther(*words, "--shard=0/2")  # it has done everything; the other never came
    Path("out.h5ad").unlink()
    part = next((cohort / "out.h5ad.shards" / "results").iterdir())
    aside = part.rename(cohort / "aside")
    assert "1 of 12 parts are not done" in panther("merge", "out.h5ad", code=2)[1]
    aside.rename(part)
    panther("merge", "out.h5ad")
    assert Path("out.h5ad").read_bytes() == Path("one.h5ad").read_bytes()
    assert not (cohort / "out.h5ad.shards").exists()
    assert "neither this output" in panther("merge", "nothing.h5ad", code=2)[1]


def test_other_features_begin_anew(cohort, monkeypatch, panther):
    monkeypatch.chdir(cohort)
    panther("prototypes", "features", "-C", 3, "-o", "p.safetensors")
    words = ("embed", "features", "-p", "p.safetensors", "-o")
    panther(*words, "out.h5ad", "--shard", "0/2")
    np.save("features/S0.npy", np.ones((5, 4), np.float32))
    panther(*words, "out.h5ad", "--shard", "1/2")
    panther(*words, "alone.h5ad")
    assert Path("out.h5ad").read_bytes() == Path("alone.h5ad").read_bytes()


@pytest.mark.slow
def test_a_study(cohort, monkeypatch, panther):
    monkeypatch.chdir(cohort)
    study = "name: s\ntable: cohort.csv\nfeatures: {own: features}\ntask: {label: subtype}\nheads: [probe]\n"
    study += "methods: [panther, deepsets]\nn_prototypes: [2]\nsplits: {scheme: kfold, k: 2}\nbootstrap: 20\n"
    Path("s.yaml").write_text(study)
    panther("run", "s.yaml", "-o", "alone")
    for i in range(2):
        panther("run", "s.yaml", "-o", "shared", "--shard", f"{i}/2")
    for name in ("summary.csv", "metrics.csv", "comparisons.csv", "predictions.csv"):
        if Path("alone", name).exists():
            assert Path("alone", name).read_bytes() == Path("shared", name).read_bytes(), name
    assert Path("shared/summary.csv").exists()
    assert not Path("shared.shards").exists()


def test_a_shard_that_is_none_is_refused_before_the_work(cohort, monkeypatch, panther):
    monkeypatch.chdir(cohort)
    said = panther("prototypes", "features", "-o", "p.safetensors", "--shard", "3/3", code=2)[1]
    assert "--shard" in said
    assert not list(cohort.glob("p.safetensors*"))


def test_shards_may_have_other_workers_and_another_way_to_print(monkeypatch):
    asked = [
        "embed",
        "f",
        "-p",
        "p",
        "-o",
        "out",
        "-j2",
        "--json",
        "--device=cpu",
        "--shard",
        "0/2",
        "--set",
        "steps=2",
    ]
    monkeypatch.setattr(_common, "typed", asked)
    assert _common._typed_without(*_common.ALONE) == ["embed", "f", "-p", "p", "--set", "steps=2"]

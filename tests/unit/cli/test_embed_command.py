"""`panther embed`: the same bytes whoever computes them, killed or not; bad slides listed, patients joined."""

import subprocess
import sys

import anndata
import numpy as np
from running import embed, save, strict_json

from panther.storage.prototypes import load_prototypes


def test_a_slide_of_another_dimension_is_left_out_and_named(panther, cohort):
    save(cohort / "feats" / "other.npy", d=9)
    _, err = panther("prototypes", "feats", "-C", 2, "-o", "p.safetensors", "-j", 1, code=1)
    assert "other" in err
    assert "other" not in load_prototypes(cohort / "p.safetensors").slides
    _, err = panther(*embed(), code=1)
    assert "other.npy: features are 9-dimensional but the prototypes expect 6" in err
    assert "other" not in anndata.read_h5ad("s.h5ad").obs_names


def test_bad_slides_are_listed_and_skipped(panther, cohort):
    x = np.load("feats/002.npy")
    x[4, 0] = np.inf
    np.save("feats/002.npy", x)
    save(cohort / "feats" / "empty.npy", n=0)
    result = strict_json(panther(*embed("--json"), code=1)[0])
    assert set(result["failures"]) == {"002", "empty"}
    assert "row 4" in result["failures"]["002"]
    assert "zero patches" in result["failures"]["empty"]
    assert list(anndata.read_h5ad("s.h5ad").obs_names) == ["000", "001", "003", "004", "005"]


def test_a_run_killed_half_way_leaves_nothing_and_starts_again(panther, cohort):
    script = (
        "import os, sys\nimport panther.aggregators.embed as embed\nfrom panther.cli import main\n"
        "def dying(*a):\n"
        "    for number, one in enumerate(stream(*a)):\n        number == 3 and os.kill(os.getpid(), 9)\n        yield one\n"
        "stream, embed.stream = embed.stream, dying\nsys.argv = ['panther', *sys.argv[1:]]\nmain()\n"
    )
    done = subprocess.run([sys.executable, "-c", script, *map(str, embed())], check=False)
    assert done.returncode == -9
    assert not (cohort / "s.h5ad").exists()
    assert {path.name for path in cohort.iterdir()} == {"feats", "p.npy"}
    panther(*embed())
    panther(*embed("-o", "whole.h5ad"))
    assert (cohort / "s.h5ad").read_bytes() == (cohort / "whole.h5ad").read_bytes()
    assert {path.name for path in cohort.iterdir()} == {"feats", "p.npy", "s.h5ad", "whole.h5ad"}


def test_one_embedding_a_patient(panther, cohort):
    (cohort / "t.csv").write_text("slide_id,case_id,age\n000,07,60\n001,07,60\n002,8,50\n003,9,40\n099,9,40\n")
    _, err = panther(*embed("--table", "t.csv", "--level", "patient"), code=1)  # 099 has no features
    assert "099" in err
    data = anndata.read_h5ad("s.h5ad")
    assert list(data.obs_names) == ["07", "8", "9"]
    assert list(data.obs["n_patches"]) == [30 + 31, 32, 33]
    assert list(data.obs["age"]) == [60, 50, 40]
    assert list(data.obs["n_slides"]) == [2, 1, 1]
    (cohort / "joined").mkdir()
    np.save("joined/07.npy", np.concatenate([np.load("feats/000.npy"), np.load("feats/001.npy")]))
    panther("embed", "joined", "-p", "p.npy", "-o", "joined.h5ad", "-j", 1)
    np.testing.assert_allclose(data.X[0], anndata.read_h5ad("joined.h5ad").X[0], rtol=1e-4, atol=1e-5)


def test_real_bags_are_inspected_and_embedded(panther, shared_data, tmp_path):
    result = strict_json(panther("inspect", shared_data / "bags", "--deep", "-j", 1, "--json")[0])
    about = {file.rsplit("/", 1)[1]: bag for file, bag in result["files"].items()}
    assert about["TCGA-AD-6964.stamp.h5"]["format"] == "stamp"
    assert [bag["patches"] for bag in about.values()] == [180, 777]
    assert not about["TCGA-3X-AAVA.no-coords.h5"]["coords"]
    protos, output = tmp_path / "p.safetensors", tmp_path / "s.h5ad"
    panther("prototypes", shared_data / "bags", "-C", 4, "-o", protos, "-j", 1)
    for preset in ("paper", "published-code", "calibrated"):
        panther("embed", shared_data / "bags", "-p", protos, "-o", output, "--preset", preset, "-j", 1)
        data = anndata.read_h5ad(output)
        assert data.shape == (2, 4 * (1 + 2 * 512))
        assert np.isfinite(data.X).all()
        np.testing.assert_allclose(data.obsm["pi"].sum(1), 1, rtol=1e-4)
        assert (data[:, data.var["statistic"] == "sigma"].X >= 0).all()


def test_a_patient_called_na_is_kept_in_the_file(panther, cohort):
    rows = "".join(f"00{n},{who},{n}\n" for n, who in enumerate(("NA", "null", "p", "q", "r", "s")))
    (cohort / "t.csv").write_text(f"slide_id,case_id,age\n{rows}")
    panther(*embed("--table", "t.csv"))
    assert list(anndata.read_h5ad("s.h5ad").obs["case_id"])[:3] == ["NA", "null", "p"]

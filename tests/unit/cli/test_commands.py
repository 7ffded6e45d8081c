"""The commands as users run them: what they print, the files they leave, and their exit codes."""

import os
import subprocess
import sys

import h5py
import numpy as np
import pytest
from running import embed, save, strict_json


def test_help_and_version_import_nothing_heavy():
    script = (
        "import sys\nfrom panther.cli import main\n"
        "for a in (['--help'], ['embed', '--help'], ['--version'], ['__complete', 'study', ''], ['no-such-command']):\n"
        "    sys.argv = ['panther', *a]\n    try:\n        main()\n    except SystemExit:\n        pass\n"
        "heavy = {'torch', 'pandas', 'h5py', 'anndata', 'sklearn', 'numpy', 'distributed'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Exit codes" in done.stdout


def test_python_m_panther_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "panther", "inspect", "/no/such/place"], capture_output=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr == b"panther: /no/such/place: there is no such file or folder.\n"


def test_a_refusal_is_one_line_and_v_anywhere_shows_the_traceback(panther, cohort):
    out, err = panther("inspect", "missing", code=2)
    assert (out, err) == ("", "panther: missing: there is no such file or folder.\n")
    for arguments in (("-v", "inspect", "missing"), ("inspect", "missing", "-v")):
        out, err = panther(*arguments, code=2)
        assert "Traceback" in err
        assert err.endswith("panther: missing: there is no such file or folder.\n")


def test_doctor_names_versions_and_remedies(panther):
    out, _ = panther("doctor")
    assert "torch" in out
    findings = strict_json(panther("doctor", "--json")[0])["findings"]
    assert {"python", "torch", "plotly", "flask", "OpenSlide", "GPU", "threads", "memory", "disk"} <= {
        f["what"] for f in findings
    }
    assert all(f["remedy"] for f in findings if f["state"] == "missing")


def test_inspect_summarises_a_folder_and_names_damaged_files(panther, cohort):
    save(cohort / "feats" / "empty.npy", n=0)
    (cohort / "feats" / "broken.h5").write_bytes(b"\x89HDF\r\n\x1a\n broken")
    (cohort / "feats" / "notes.txt").touch()
    out, err = panther("inspect", "feats", "-j", 1, code=1)
    assert "7 bags, npy, d=6 float32" in out
    assert "1 with zero patches" in out
    assert "broken.h5" in err
    x = np.load("feats/002.npy")
    x[17, 3] = np.nan
    np.save("feats/002.npy", x)
    result = strict_json(panther("inspect", "p.npy", "feats", "--json", code=1)[0])
    assert {"p.npy", "feats/000.npy", "feats/002.npy"} <= set(result["files"])
    about = result["files"]["feats/003.npy"]
    assert (about["kind"], about["slide"], about["patches"], about["dim"]) == ("bag", "003", 33, 6)
    assert list(result["failures"]) == ["feats/broken.h5"]
    assert "row 17" in panther("inspect", "feats", "--deep", "-j", 1, code=1)[1]


def test_convert_writes_then_keeps_also_inside_its_source(panther, cohort):
    arguments = ("convert", "feats", "-o", "feats/half", "--dtype", "float16", "-j", 1)
    assert "6 bags written" in panther(*arguments)[0]
    assert "0 bags written as trident, 6 were there already" in panther(*arguments)[0]
    with h5py.File("feats/half/004.h5") as file:
        np.testing.assert_array_equal(file["features"][...], np.load("feats/004.npy").astype(np.float16))


@pytest.mark.parametrize(
    "arguments",
    [
        embed("-o", "feats"),
        embed("-o", "p.npy/s.h5ad"),
        embed("-o", "/proc/panther/s.h5ad"),
        embed("-p", "missing.npy", "-o", "new/s.h5ad"),
        embed("--preset", "calibrated"),  # these prototypes carry no variance
        embed("--set", "steps=0"),
        embed("--set", "steps"),
        embed("--set", "temperature=NaN"),
        embed("--level", "patient"),
        embed("-o", "m.csv"),
        embed("-j", -1),
        ("embed", "missing", "-p", "p.npy", "-o", "s.h5ad"),
        ("prototypes", "feats", "-o", "q.safetensors", "-C", 0),
        ("prototypes", "feats", "-o", "q.safetensors", "-C", 10_000, "-j", 1),
        ("prototypes", "feats", "-o", "/dev/null"),
        ("convert", "feats", "-o", "out", "--slide-mpp", 896),
        ("inspect",),
        ("nothing",),
    ],
    ids=lambda arguments: " ".join(map(str, arguments)),
)
def test_a_request_that_makes_no_sense_is_refused_and_leaves_nothing(panther, cohort, arguments):
    before = sorted(cohort.rglob("*"))
    out, err = panther(*arguments, code=2)
    assert out == ""
    assert err
    assert sorted(cohort.rglob("*")) == before
    assert not os.path.isfile("/dev/null")


def test_train_refuses_prototypes_that_contradict_the_other_options(panther, cohort):
    (cohort / "t.csv").write_text("case_id,slide_id,label\n" + "".join(f"{i},00{i},{'ab'[i % 2]}\n" for i in range(6)))
    usual = ("train", "feats", "--table", "t.csv", "--label", "label", "-p", "p.npy", "-o", "m.safetensors")
    _, err = panther(*usual, "-C", 8, code=2)
    assert err.startswith("panther: p.npy: found 3 prototypes")
    _, err = panther(*usual, "--method", "abmil", code=2)
    assert "abmil" in err
    panther(*usual, "-C", 3)


def test_threads_of_nested_regions_are_no_error(cohort):
    environment = {**os.environ, "OMP_NUM_THREADS": "4,2"}
    environment.pop("NUMEXPR_NUM_THREADS", None)
    call = [sys.executable, "-m", "panther", "inspect", "."]
    assert subprocess.run(call, env=environment, capture_output=True, check=False).returncode == 0

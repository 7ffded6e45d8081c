"""Blocks of the embedding, centring and further sites, asked for wrongly: one sentence, nothing half-written."""

import h5py
import numpy as np
import pytest

from hostile.judging import assert_goes_on, assert_refused, run_here
from hostile.lab import write_bag

FIT = ("prototypes", "feats", "-j", 1, "-o", "new.safetensors")
EMBED = ("embed", "feats", "-p", "p.safetensors", "-j", 1, "-o", "new.npz")


def write_sites(lab, name, sites):
    """The table with a column of sites; None: no row."""
    lines = (lab / "table.csv").read_text().splitlines()
    rows = [f"{line},{site}" for line, site in zip(lines[1:], sites, strict=True) if site is not None]
    (lab / name).write_text("\n".join([f"{lines[0]},tissue_source_site", *rows]) + "\n")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ((*EMBED, "--blocks", "spcae"), ("no block 'spcae'", "did you mean 'space'")),
        ((*EMBED, "--blocks", "tail", "--method", "ot"), ("'ot' has no setting 'blocks'",)),
        ((*FIT, "-C", 3, "--centre", "nonsense"), ("nonsense", "centre", "slide", "site")),
        ((*FIT, "-C", 3, "--centre", "site"), ("table: ", "site column")),
        (
            (*FIT, "-C", 3, "--centre", "site", "--table", "table.csv"),
            ("table.csv", "site column"),
        ),
    ],
)
def test_impossible_options_are_refused_before_the_work(lab, command, words):
    assert_refused(run_here(command, lab), *words)
    assert not list(lab.glob("new.*"))


@pytest.mark.parametrize("more", [("--blocks", "space,tail"), ("--method", "protocounts")])
def test_a_patch_with_nan_fails_its_slide_alone(lab, more):
    with h5py.File(lab / "feats" / "s03.h5", "r+") as file:
        file["features"][2] = np.nan
    assert_goes_on(run_here((*EMBED, *more), lab), ["s03.h5"])
    assert "s03" not in np.load(lab / "new.npz")["samples"]


def test_unusable_slides_of_a_further_site_are_reported(lab):
    write_sites(lab, "part.csv", [*"NNNSSS", *[None] * 6])
    write_sites(lab, "all.csv", [*"NNNSSSWWWWW", ""])
    assert run_here((*FIT, "-C", 3, "--centre", "site", "--table", "part.csv"), lab).code == 0
    (lab / "feats" / "s06.h5").write_bytes(b"rubbish")
    write_bag(lab / "feats" / "s07.h5", 7, dim=7)
    with h5py.File(lab / "feats" / "s08.h5", "r+") as file:
        file["features"][:] = np.nan
    embed = ("embed", "feats", "-p", "new.safetensors", "--table", "all.csv", "-j", 1, "-o", "new.npz")
    assert_goes_on(run_here(embed, lab), ["s06", "s07", "s08", "s11"])
    assert list(np.load(lab / "new.npz")["samples"]) == ["s00", "s01", "s02", "s03", "s04", "s05", "s09", "s10"]


def test_shift_names_the_file_and_the_problem(lab):
    write_sites(lab, "sites.csv", "NNNNNNSSSSSS")
    write_sites(lab, "few.csv", [*"NNNN", None, None, *"SSSS", None, None])
    assert run_here((*EMBED[:-1], "new.h5ad", "--table", "sites.csv"), lab).code == 0
    shift = ("shift", "new.h5ad", "--permutations", 19)
    assert_refused(run_here((*shift, "--label", "nobody"), lab), "new.h5ad: no column 'nobody'")
    assert_refused(run_here((*shift, "--label", "os_survival_days"), lab), "new.h5ad: label", "and 6 more")
    assert_refused(run_here((*shift, "--against", "none.h5ad"), lab), "none.h5ad: there is no such file")
    assert run_here((*EMBED[:-1], "few.h5ad", "--table", "few.csv"), lab).code == 0
    assert_refused(
        run_here((*shift, "--against", "few.h5ad"), lab), "new.h5ad, patients that are in few.h5ad too", "N (4), S (4)"
    )
